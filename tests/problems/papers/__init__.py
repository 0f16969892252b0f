"""Tests of the papers' values, of runs that take them, and of figures."""
