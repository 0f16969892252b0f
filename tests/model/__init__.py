"""Tests of dpcvx/model."""
