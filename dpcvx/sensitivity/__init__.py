"""How far one change in private data moves what is released."""
