"""Trials of an installed package with its own ONNX Runtime, each in a child process."""
