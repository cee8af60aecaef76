"""One package's archive without an index: what an index would say of it, from its own manifest."""

from __future__ import annotations

from pathlib import Path

from builder.client.compressed import open_tar
from builder.client.digest import sha256_of, size_of
from builder.client.extract import read_manifest
from builder.core.index import Index, Stored, build_index, dumps, loads
from builder.core.naming import form_of, stem
from builder.errors import TransferError


def index_of(archive: Path) -> Index:
    """An index with this package in it.

    Its bytes are promised by nobody else: they are taken for what they are, and the manifest inside holds
    each file to its own sha256. What it says is held to an index's rules. Raises ``TransferError``,
    ``IntegrityError``, ``ToolMissingError`` or ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    with open_tar(archive, form_of(archive.name)) as stream:
        manifest = read_manifest(stream, stem(archive.name))
    stored = Stored(archive.name, size_of(archive), sha256_of(archive))
    return loads(dumps(build_index("", [(manifest, stored)], manifest.models)), archive.name)
