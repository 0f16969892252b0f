"""Optimization methods, one per file, and `Program`, the public arrays of a problem for them."""
