"""This package reads ``variants.yaml`` and ``inputs.lock`` strictly and reports all their problems.

Nothing here opens a file: callers pass the text and the file's name.
"""
