"""Compilation of users' declarations: agents, private data, normal forms of objectives."""
