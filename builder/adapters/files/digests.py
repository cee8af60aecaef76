"""Files read once from end to end, hashed on the way; a file that somebody writes to meanwhile is told.

``SHA256SUMS`` of an output folder: merged under a lock, because variants finish side by side.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from builder.adapters.files.part_file import disk_errors, part_file
from builder.errors import IntegrityError, ParseError
from builder.package.archive import ChangedFileError, Digest, Member
from builder.release.assets import CHECKSUMS, parse_checksums

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


class ChecksumFile:
    """Implements ``package.archive.Checksums``."""

    def read(self, folder: Path) -> Mapping[str, str]:
        """See ``package.archive.Checksums.read``."""
        path = folder / CHECKSUMS
        if not path.is_file():
            return {}
        try:
            return parse_checksums(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ParseError(f"{path}: {error}. Delete the file: the next build writes it anew.") from error

    def update(self, folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
        """See ``package.archive.Checksums.update``."""
        with disk_errors(folder / CHECKSUMS), _locked(folder):
            before = self.read(folder)
            after = {name: digest for name, digest in {**before, **put}.items() if name not in drop}
            if after != before:
                _write(folder / CHECKSUMS, after)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the folder itself is the lock, so that none is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, sums: Mapping[str, str]) -> None:
    with part_file(path) as file:
        file.write("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode())
