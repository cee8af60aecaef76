"""Each module prints a ratio against what a user would do by hand, both sides in one run."""
