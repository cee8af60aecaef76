"""A package as one stream of bytes, whether it lies in one file or in parts that are proved while read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from builder.adapters.digests import CHUNK
from builder.core import parts as format_
from builder.core.naming import PARTS_SUFFIX
from builder.core.package import Digest
from builder.core.parts import PartEntry, Parts
from builder.errors import IntegrityError, ValidationError


@contextmanager
def opened_whole(package: Path) -> Iterator[IO[bytes]]:
    """The archive's bytes: of ``package`` itself, or of the parts that it joins when it is a ``.parts.json``.

    Raises ``ValidationError`` when there is no such file. Reading raises ``IntegrityError`` naming the part
    that is missing or not what it should be, at the end of that part at the latest.
    """
    if not package.is_file():
        raise ValidationError(f"{package}: no such package. `./run build` leaves its packages in dist/.")
    if not package.name.endswith(PARTS_SUFFIX):
        with package.open("rb") as file:
            yield file
        return
    yield cast("IO[bytes]", _Stream(_joined(package.parent, _read(package))))


def blame_part(package: Path, file: IO[bytes]) -> None:
    """Raise ``IntegrityError`` for the part that is not what it should be, if that is why reading failed.

    A part is compared at its end, and what is in it may fail to decompress before.
    """
    while package.name.endswith(PARTS_SUFFIX) and file.read(CHUNK):
        pass


def whole_digest(package: Path) -> Digest:
    """Size and sha256 of the archive's bytes."""
    hasher, size = hashlib.sha256(), 0
    with opened_whole(package) as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return Digest(size, hasher.hexdigest())


def _read(package: Path) -> Parts:
    with package.open("rb") as file:
        text = file.read(format_.LIMIT + 1)
    if len(text) > format_.LIMIT:
        raise IntegrityError(f"{package} has more than {format_.LIMIT:,} bytes: it joins no parts of ours.")
    parts = format_.loads(text, package.name)
    if package.name != f"{parts.file}{PARTS_SUFFIX}":
        raise ValidationError(
            f"{package} joins the parts of {parts.file}. Give it back its name, {parts.file}{PARTS_SUFFIX}."
        )
    return parts


def _joined(folder: Path, parts: Parts) -> Iterator[bytes]:
    """The archive's bytes; ``IntegrityError`` at the end of a part that is not what it should be."""
    whole = hashlib.sha256()
    for part in parts.parts:
        for chunk in _proved(folder / part.file, part):
            whole.update(chunk)
            yield chunk
    if whole.hexdigest() != parts.sha256:
        raise IntegrityError(
            f"{folder / parts.file}: its parts are whole and do not join to it: sha256 {parts.sha256} "
            f"is wanted, got {whole.hexdigest()}. Download the parts and the file that joins them again."
        )


def _proved(path: Path, part: PartEntry) -> Iterator[bytes]:
    hasher, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
                size += len(chunk)
                yield chunk
    except OSError as error:
        raise IntegrityError(
            f"{path} cannot be read: {error.strerror}. It is a part of the package: download it again."
        ) from error
    got = PartEntry(part.file, size, hasher.hexdigest())
    if got != part:
        raise IntegrityError(
            f"{path} is damaged: {part.size} bytes, sha256 {part.sha256} are wanted, got {got.size} bytes, "
            f"sha256 {got.sha256}. Download it again."
        )


class _Stream:
    """Chunks as a file that is read forward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end only."""
        self._left = self._left or memoryview(next(self._chunks, b""))
        given, self._left = bytes(self._left[:size]), self._left[size:]
        return given
