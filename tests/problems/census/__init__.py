"""Tests of the census study."""
