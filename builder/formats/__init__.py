"""Readers and writers of file formats, a reader of ONNX Runtime's logs and the binding of its C API.

The formats are manifest, index, tables of models, signed metadata, and the names of packages. Readers accept
the two last versions of manifest and index. The package ships in ``ortpacks.pyz``.
"""
