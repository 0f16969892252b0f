"""The door to private data, the loop around it, where agents live, what comes back."""
