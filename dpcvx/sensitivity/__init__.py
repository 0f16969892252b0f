"""Sensitivity of released values to one change of the private data."""
