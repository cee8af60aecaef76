"""A package's archive as an index of its own, made from the manifest inside."""

from __future__ import annotations

from pathlib import Path

from builder.client.install.decompress import open_tar
from builder.client.install.unpack import read_manifest
from builder.errors import TransferError
from builder.files.digest import sha256_of, size_of
from builder.formats.index import Index, StoredArchive, build_index, dumps, loads
from builder.formats.package_names import Form


def index_of(archive: Path, form: Form) -> Index:
    """An index with this package, whose archive is of that ``form``, in it.

    Its bytes are promised by nobody else: they are taken for what they are, and the manifest inside holds
    each file to its own sha256. Its name may be another one than the package's: browsers change it. What it
    says is held to an index's rules. Raises ``TransferError``, ``IntegrityError``, ``ToolMissingError`` or
    ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    with open_tar(archive, form) as stream:
        manifest = read_manifest(stream, archive.name)
    stored = StoredArchive(f"{manifest.name}{form.value}", size_of(archive), sha256_of(archive))
    return loads(dumps(build_index("", [(manifest, stored)], manifest.models)), archive.name)
