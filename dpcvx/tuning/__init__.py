"""Searches for settings of plans, and forecasts of accuracy, on public proxy data."""
