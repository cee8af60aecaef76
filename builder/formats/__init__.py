"""Readers and writers of file formats, and a reader of ONNX Runtime's logs.

The formats are manifest, index, parts, models and signed metadata, and the names of packages. Readers accept
the two last versions of manifest and index. The package ships in ``ortpacks.pyz``.
"""
