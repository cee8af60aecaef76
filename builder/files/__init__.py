"""Files, once for the builder and the client: whole or not at all, locked, hashed, downloaded, unpacked.

The room ships in ``ortpacks.pyz``: Python 3.9 and its standard library.
"""
