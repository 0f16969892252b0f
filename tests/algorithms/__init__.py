"""Tests of single methods and their parameter rules."""
