"""Tests of dpcvx/plan."""
