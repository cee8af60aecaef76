"""The command ``inspect``, for the verb and for ``ortpacks-inspect.pyz``, which needs only Python."""
