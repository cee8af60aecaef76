"""Sessions of ONNX Runtime on an installed package, each in a child process."""
