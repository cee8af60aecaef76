"""Comparison of a package with the official wheel of its version, by the results of onnx's backend tests."""
