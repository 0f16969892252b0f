"""Plans: everything that fixes the guarantee before data are read, and its texts."""
