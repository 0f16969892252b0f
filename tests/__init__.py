"""Tests of the package and of the case studies."""
