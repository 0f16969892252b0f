"""Executors: they decide where agents live, and call them."""
