"""Tests of dpcvx/privacy."""
