"""This package holds the verbs of ``./run``. Invoke parses their flags; ``builder.builds`` does the work."""
