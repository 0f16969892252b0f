"""Defaults for settings that users omit: method, noise, steps, clips; no guarantee rests on any."""
