"""Many owners: documents and messages that cross between them, what an owner checks, and runs."""
