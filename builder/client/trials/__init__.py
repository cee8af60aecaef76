"""Trials run the ONNX Runtime of an installed package, each in a child process."""
