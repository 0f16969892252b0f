"""Questions that agents' turns may ask of private data."""
