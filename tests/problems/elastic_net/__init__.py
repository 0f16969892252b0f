"""Tests of the elastic-net study."""
