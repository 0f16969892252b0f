"""Everything that fixes the guarantee before data are read, and how it is said."""
