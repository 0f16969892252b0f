"""Tests of dpcvx/run."""
