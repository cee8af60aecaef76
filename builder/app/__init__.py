"""This package holds the work of the verbs, whose flags ``tasks.py`` has, and Invoke's program."""
