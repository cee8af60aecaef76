"""``variants.yaml`` and ``inputs.lock``: text to values, strictly, with every problem of a file at once.

Nothing here opens a file: callers read the text and say what the file is called.
"""
