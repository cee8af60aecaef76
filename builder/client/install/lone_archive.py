"""A single archive gets an index of its own, made from the manifest inside."""

from __future__ import annotations

from pathlib import Path

from builder.client.install.decompress import open_tar
from builder.client.install.unpack import read_manifest
from builder.errors import TransferError
from builder.files.digest import sha256_of, size_of
from builder.formats.index import Index, StoredArchive, build_index, dumps, loads
from builder.formats.package_names import Form


def index_of(archive: Path, form: Form) -> Index:
    """Return an index with the one package whose archive, of this ``form``, is ``archive``.

    No release promises the archive's sha256, so it is taken as it is; the manifest inside names the sha256 of
    each file. The file's name may differ from the package's, because browsers change it. The index is checked
    like any other. Raises ``TransferError``, ``IntegrityError``, ``ToolMissingError`` or ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    with open_tar(archive, form) as stream:
        manifest = read_manifest(stream, archive.name)
    stored = StoredArchive(f"{manifest.name}{form.value}", size_of(archive), sha256_of(archive))
    return loads(dumps(build_index("", [(manifest, stored)], manifest.models)), archive.name)
