"""Operations on files for the builder and the client: atomic writes, locks, digests, downloads, archives.

The package ships in ``ortpacks.pyz``, so it needs only Python 3.9 and its standard library.
"""
