"""Tests of dpcvx/sensitivity."""
