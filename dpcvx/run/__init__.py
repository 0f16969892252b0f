"""Runs of plans: the privacy gate, the loop of rounds, the agents' workers, and results."""
