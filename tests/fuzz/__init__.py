"""Fuzzing of the readers of untrusted files: on mutated headers they must answer or refuse within a second.

``python -m tests.fuzz --executions 1000000 --seed 1`` runs so many files and prints a line.
"""
