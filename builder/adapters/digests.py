"""Files read once from end to end, hashed on the way; a file that somebody writes to meanwhile is told."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import IO

from builder.core.package import ChangedFileError, Digest, Member
from builder.errors import IntegrityError

CHUNK = 1 << 20
"""Bytes that are read, hashed and written at a time."""


def file_digest(path: Path) -> Digest:
    """Size and sha256 of a file's bytes, one pass. Raises ``IntegrityError`` as ``chunks_of`` does."""
    hasher, size = hashlib.sha256(), 0
    for chunk in chunks_of(path):
        hasher.update(chunk)
        size += len(chunk)
    return Digest(size, hasher.hexdigest())


def chunks_of(path: Path) -> Iterator[bytes]:
    """The file's bytes. ``IntegrityError`` when it cannot be read, or was written to by the end."""
    try:
        with path.open("rb") as file:
            before = _state(file)
            while chunk := file.read(CHUNK):
                yield chunk
            after = _state(file)
    except OSError as error:
        raise IntegrityError(
            f"{path} cannot be read: {error.strerror}. Check it and its mode, or delete it and build again."
        ) from error
    if before != after:
        raise IntegrityError(
            f"{path} changed while it was read. Let nothing else write there, and build again."
        )


class Hashing:
    """A sha256 that one of ``pool``'s threads computes a chunk behind, while the next one is read."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._hash = hashlib.sha256()
        self._under_way: Future[None] | None = None

    def update(self, chunk: bytes) -> None:
        """Take a chunk, once the one before is done."""
        self._wait()
        self._under_way = self._pool.submit(self._hash.update, chunk)

    def hexdigest(self) -> str:
        """Of all chunks."""
        self._wait()
        return self._hash.hexdigest()

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()


def proved(member: Member, wanted: Digest, pool: Executor) -> Iterator[bytes]:
    """The member's bytes; ``ChangedFileError`` as soon as they are known not to be the wanted ones."""
    hasher, size = Hashing(pool), 0
    for chunk in chunks_of(member.file):
        size += len(chunk)
        if size > wanted.size:
            raise ChangedFileError(member, wanted, None)
        hasher.update(chunk)
        yield chunk
    got = Digest(size, hasher.hexdigest())
    if got != wanted:
        raise ChangedFileError(member, wanted, got)


def _state(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns
