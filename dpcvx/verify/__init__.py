"""Replays, attacks, comparisons and computations on raw data, for tests and studies."""
