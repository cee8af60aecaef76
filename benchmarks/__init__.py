"""Benchmarks. Most print a ratio to what a user would do by hand, with both sides measured in one run."""
