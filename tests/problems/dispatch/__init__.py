"""Shared resources."""
