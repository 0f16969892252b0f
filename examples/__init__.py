"""Short scripts that teach; each runs in seconds and is executed by a test."""
