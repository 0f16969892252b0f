"""Tests of dpcvx/defaults."""
