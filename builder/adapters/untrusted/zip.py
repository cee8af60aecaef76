"""Zip archives that nobody vouches for: wheels, NuGet packages, and those that lie in others.

Only libraries are written, and archives in an archive until they are read.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from builder.adapters.untrusted.image_documents import Layer, plain
from builder.adapters.untrusted.reading import Allowance, Scratch, damage, is_zip
from builder.binary.kinds.file_kinds import HEAD
from builder.binary.library_names import is_library
from builder.errors import ValidationError
from builder.formats.text import printable

_ENCRYPTED = 0x1

_DEEPEST = 3
"""Archives in one another."""


def read_zip(path: Path, scratch: Scratch, what: str) -> Layer:
    """What the archive unpacks to. Raises ``IntegrityError``, ``ValidationError``, ``DiskError``."""
    layer = Layer()
    for name, file in members_of(path, scratch, what, Allowance.of(what, path.stat().st_size)):
        layer.add(name, file)
    return layer


def members_of(
    path: Path, scratch: Scratch, what: str, allowance: Allowance, depth: int = 1
) -> Iterator[tuple[str, Path]]:
    """Yield the libraries of a zip and of zips in it, by their paths. Raises as ``read_zip``."""
    if depth > _DEEPEST:
        raise ValidationError(
            f"{what} lies in {_DEEPEST} archives, one in the other. Unpack the outer ones and name it."
        )
    with damage(what), ZipFile(path) as archive:
        files = {plain(info.filename): info for info in archive.infolist() if _is_file(info)}
        wanted: dict[str, bool] = {}
        for name, info in files.items():
            head = _head(archive, name, info, what)
            if is_library(name, head) or is_zip(head):
                wanted[name] = is_zip(head)
        unpacked = sum(files[name].file_size for name in wanted)
        allowance.take_libraries(len(wanted))
        allowance.take_content(unpacked)
        scratch.require(unpacked, what)
        for name, is_nested in wanted.items():
            info, whole = files[name], f"{what}: {printable(name)}"
            with archive.open(info) as content:
                file = scratch.keep(content, info.file_size, whole)
            if is_nested:
                for inner, library in members_of(file, scratch, whole, allowance, depth + 1):
                    yield f"{name}/{inner}", library
                file.unlink()
            else:
                yield name, file


def _is_file(info: ZipInfo) -> bool:
    return not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)


def _head(archive: ZipFile, name: str, info: ZipInfo, what: str) -> bytes:
    """A member's first bytes."""
    if info.flag_bits & _ENCRYPTED:
        raise ValidationError(
            f"{what}: {printable(name)} is encrypted. Unpack it with its password and name the folder."
        )
    with archive.open(info) as content:
        return content.read(HEAD)
