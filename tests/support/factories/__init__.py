"""Factories of values and files for tests."""
