"""Cuts an archive into parts: in one pass, the file that joins them last, and only then the whole goes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from builder.adapters.digests import CHUNK
from builder.adapters.partfile import disk_errors, part_file, require_space, sync_folder
from builder.core.naming import PARTS_SUFFIX
from builder.core.parts import FORMAT, PartEntry, Parts, dumps, part_names
from builder.errors import IntegrityError


def split_archive(package: Path, most: int) -> tuple[Path, ...]:
    """See ``core.package.Archive.split``."""
    size = package.stat().st_size
    if size <= most:
        return (package,)
    paths = tuple(package.with_name(name) for name in part_names(package.name, -(-size // most)))
    joins = package.with_name(f"{package.name}{PARTS_SUFFIX}")
    with disk_errors(package, size):
        _clear(package, joins, paths)
        require_space(package, size)
        parts = _cut(package, size, paths, most)
    with part_file(joins) as file:
        file.write(dumps(parts).encode())
    with disk_errors(package):
        package.unlink()
        sync_folder(package.parent)
    return (*paths, joins)


def _clear(package: Path, joins: Path, paths: tuple[Path, ...]) -> None:
    """What another split of an archive of this name left and this one does not write over.

    First the file that joins: there is none while parts change.
    """
    joins.unlink(missing_ok=True)
    piece = re.compile(rf"({re.escape(package.name)}\.part\d+)(\.part-.*)?")
    names = {path.name for path in paths}
    for path in package.parent.iterdir():
        match = piece.fullmatch(path.name)
        if match and match[1] not in names:
            path.unlink(missing_ok=True)


def _cut(package: Path, size: int, paths: tuple[Path, ...], most: int) -> Parts:
    whole = hashlib.sha256()
    with package.open("rb") as archive:
        entries = tuple(_part(archive, path, most, whole) for path in paths)
        rest = archive.read(1)
    if rest or sum(entry.size for entry in entries) != size:
        raise IntegrityError(
            f"{package} changed while it was split. Let nothing else write there, and build again."
        )
    return Parts(format=FORMAT, file=package.name, size=size, sha256=whole.hexdigest(), parts=entries)


def _part(archive: IO[bytes], path: Path, most: int, whole: hashlib._Hash) -> PartEntry:
    hasher, size = hashlib.sha256(), 0
    with part_file(path) as file:
        for chunk in _next(archive, most):
            hasher.update(chunk)
            whole.update(chunk)
            size += file.write(chunk)
    return PartEntry(path.name, size, hasher.hexdigest())


def _next(archive: IO[bytes], most: int) -> Iterator[bytes]:
    """The next ``most`` bytes, or what there is."""
    left = most
    while left and (chunk := archive.read(min(CHUNK, left))):
        left -= len(chunk)
        yield chunk
