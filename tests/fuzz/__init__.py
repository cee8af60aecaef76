"""Mutated headers against the readers of untrusted files: they answer or refuse, and soon.

``python -m tests.fuzz --executions 1000000 --seed 1`` runs as long as it takes and prints one line.
"""
