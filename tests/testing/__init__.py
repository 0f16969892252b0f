"""Tests of dpcvx/testing."""
