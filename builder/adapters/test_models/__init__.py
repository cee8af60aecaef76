"""Makers of ONNX models for the self-test, ``inspect --operators`` and the reference service."""
