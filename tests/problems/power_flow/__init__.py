"""Tests of the power-flow case study."""
