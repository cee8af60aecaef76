"""The verbs of ``./run``: Invoke parses their flags here, and ``builder.builds`` does the work."""
