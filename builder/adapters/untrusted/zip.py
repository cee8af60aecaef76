"""Reader of untrusted zip archives: wheels, NuGet packages, and zips in zips.

Only libraries are written to disk, and nested zips until they are read.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from builder.adapters.untrusted.image_documents import plain
from builder.adapters.untrusted.reading import Scratch, UnpackLimits, damage_errors, is_zip
from builder.binary.kinds.file_kinds import HEAD
from builder.binary.library_names import is_library
from builder.errors import ValidationError
from builder.formats.text import printable

_ENCRYPTED = 0x1

_DEEPEST = 3
"""The deepest nesting of archives that is read."""


def read_zip(path: Path, scratch: Scratch, what: str) -> dict[str, Path]:
    """Return an archive's libraries by path.

    Raises ``IntegrityError``, ``ValidationError`` or ``DiskError``.
    """
    return dict(members_of(path, scratch, what, UnpackLimits.of(what, path.stat().st_size)))


def members_of(
    path: Path, scratch: Scratch, what: str, limits: UnpackLimits, depth: int = 1
) -> Iterator[tuple[str, Path]]:
    """Yield path and file of each library in a zip and in zips in it. Raises what ``read_zip`` raises."""
    if depth > _DEEPEST:
        raise ValidationError(
            f"{what} lies in {_DEEPEST} archives, one in the other",
            advice="Unpack the outer archives and name the inner file.",
        )
    with damage_errors(what), ZipFile(path) as archive:
        files = {plain(info.filename): info for info in archive.infolist() if _is_file(info)}
        wanted: dict[str, bool] = {}
        for name, info in files.items():
            head = _head(archive, name, info, what)
            if is_library(name, head) or is_zip(head):
                wanted[name] = is_zip(head)
        unpacked = sum(files[name].file_size for name in wanted)
        limits.take_libraries(len(wanted))
        limits.take_content(unpacked)
        scratch.require(unpacked, what)
        for name, is_nested in wanted.items():
            info, whole = files[name], f"{what}: {printable(name)}"
            with archive.open(info) as content:
                file = scratch.keep(content, info.file_size, whole)
            if is_nested:
                for inner, library in members_of(file, scratch, whole, limits, depth + 1):
                    yield f"{name}/{inner}", library
                file.unlink()
            else:
                yield name, file


def _is_file(info: ZipInfo) -> bool:
    return not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)


def _head(archive: ZipFile, name: str, info: ZipInfo, what: str) -> bytes:
    """Return a member's first bytes. Raises ``ValidationError`` if the member is encrypted."""
    if info.flag_bits & _ENCRYPTED:
        raise ValidationError(
            f"{what}: {printable(name)} is encrypted",
            advice="Unpack it with its password and name the folder.",
        )
    with archive.open(info) as content:
        return content.read(HEAD)
