"""Searches on public proxy data: tune, compare, tradeoff, forecasts."""
