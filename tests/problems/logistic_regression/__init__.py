"""Tests of the logistic-regression study."""
