"""Tests of dpcvx/solvers."""
