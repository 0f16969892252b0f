"""Noise mechanisms, accounting of their privacy loss, and ledgers of the amounts spent."""
