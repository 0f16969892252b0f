"""Tests of dpcvx/tuning."""
