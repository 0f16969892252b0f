"""Compiled declarations of users: agents, private data, layout, normal forms, curvature."""
