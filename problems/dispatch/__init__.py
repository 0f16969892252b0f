"""Agents that share a resource: generators that meet a demand, users that divide a supply."""
