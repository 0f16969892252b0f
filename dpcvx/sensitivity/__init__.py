"""Sensitivity of released values to one change in private data."""
