"""Tests of dpcvx/verify."""
