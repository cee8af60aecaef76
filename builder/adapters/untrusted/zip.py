"""Zip archives that nobody vouches for: wheels, NuGet packages. Only libraries are unpacked."""

from __future__ import annotations

import stat
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from builder.adapters.untrusted.compressed import damage
from builder.adapters.untrusted.image_documents import Layer, plain
from builder.adapters.untrusted.scratch import Allowance, Shelf
from builder.binary.library_names import HEAD, is_library
from builder.errors import ValidationError
from builder.formats.text import printable

_ENCRYPTED = 0x1


def read_zip(path: Path, shelf: Shelf, what: str) -> Layer:
    """What the archive unpacks to. Raises ``IntegrityError``, ``ValidationError``, ``DiskError``."""
    layer = Layer()
    with damage(what), ZipFile(path) as archive:
        files = {plain(info.filename): info for info in archive.infolist() if not info.is_dir()}
        wanted = {name: info for name, info in files.items() if _is_wanted(archive, name, info, what)}
        Allowance.of(what, path.stat().st_size).take_libraries(len(wanted))
        shelf.require(sum(info.file_size for info in wanted.values()), what)
        for name, info in wanted.items():
            with archive.open(info) as content:
                layer.add(name, shelf.keep(content, info.file_size, f"{what}: {printable(name)}"))
    return layer


def _is_wanted(archive: ZipFile, name: str, info: ZipInfo, what: str) -> bool:
    if stat.S_ISLNK(info.external_attr >> 16):
        return False
    if info.flag_bits & _ENCRYPTED:
        raise ValidationError(
            f"{what}: {printable(name)} is encrypted. Unpack it with its password and name the folder."
        )
    with archive.open(info) as content:
        return is_library(name, content.read(HEAD))
