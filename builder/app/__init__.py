"""Invoke's verbs: flags in, exit codes out. Uses ``builder.builds``, which wires everything."""
