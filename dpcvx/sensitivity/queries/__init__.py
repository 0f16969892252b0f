"""Queries that agents' local updates send to private data."""
