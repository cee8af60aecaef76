"""File formats: manifest, index and parts as records; package names; ONNX Runtime's logs and models.

Readers accept the two last versions of a format. Ships in ``ortpacks.pyz``.
"""
