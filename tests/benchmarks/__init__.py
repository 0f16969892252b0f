"""Costs, measured side by side in one run."""
