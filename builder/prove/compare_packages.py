"""This module compares two unpacked packages file by file, and device code container by container."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from builder.binary.elf_headers import FormatError
from builder.binary.fatbin import read_containers
from builder.binary.file_kinds import HEAD, kind_of
from builder.files.digest import sha256_of

_NAMED = 5
"""The most containers that a line names."""


def differences(theirs: Path, ours: Path) -> Iterator[str]:
    """Yield a sentence for each file that differs between two folders."""
    there, here = (
        {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        for root in (theirs, ours)
    )
    yield from (
        f"{name} is not in the package that was built here" for name in sorted(there.keys() - here.keys())
    )
    yield from (
        f"{name} is only in the package that was built here" for name in sorted(here.keys() - there.keys())
    )
    for name in sorted(there.keys() & here.keys()):
        if sha256_of(there[name]) != sha256_of(here[name]):
            yield f"{name}: {_difference(there[name], here[name])}"


def _difference(theirs: Path, ours: Path) -> str:
    there, here = theirs.stat().st_size, ours.stat().st_size
    size = f"{there:,} bytes" if there == here else f"{there:,} bytes there, {here:,} here"
    if 0 in (there, here):
        return size
    with theirs.open("rb") as a, ours.open("rb") as b:
        first, second = (mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in (a, b))
        with first, second:
            return f"{size}, the first other byte at {_first(first, second):,}; {_code(first, second)}"


def _first(first: mmap.mmap, second: mmap.mmap) -> int:
    """Return the offset of the first byte that differs, or the shorter file's size if it begins the other."""
    shorter, step = min(len(first), len(second)), 1 << 16
    for start in range(0, shorter, step):
        a, b = first[start : start + step], second[start : start + step]
        if a != b:
            return start + next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return shorter


def _code(first: mmap.mmap, second: mmap.mmap) -> str:
    if not any(kind_of(file[:HEAD]) for file in (first, second)):
        return "no device code"
    try:
        there, here = _containers(first), _containers(second)
    except FormatError as error:
        return f"its device code cannot be read: {error}"
    if not there and not here:
        return "no device code"
    if len(there) != len(here):
        return f"{len(there):,} containers of device code there, {len(here):,} here"
    other = [number for number, (a, b) in enumerate(zip(there, here, strict=True)) if a != b]
    if not other:
        return f"all {len(there):,} containers of device code are the same"
    named = ", ".join(map(str, other[:_NAMED])) + (" …" if len(other) > _NAMED else "")
    return f"{len(other):,} of {len(there):,} containers of device code differ: {named}"


def _containers(file: mmap.mmap) -> list[str]:
    """Return the sha256 of each container's images, in the order of the file."""
    digests = []
    for container in read_containers(file):
        digest = hashlib.sha256()
        for image in container.images:
            header = int.from_bytes(file[image.offset + 4 : image.offset + 8], "little")
            digest.update(file[image.offset : image.offset + header + image.size])
        digests.append(digest.hexdigest())
    return digests
