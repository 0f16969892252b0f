"""Where agents live and how they are called."""
