"""Many owners: what crosses between them, what each checks, and runs of all of them."""
