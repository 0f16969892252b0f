"""Tests of classification with a nonconvex penalty."""
