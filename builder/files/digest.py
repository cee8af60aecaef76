"""Bytes by content: size and sha256, taken while they are read, written or downloaded."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Iterable, Iterator, Optional, Tuple

from builder.errors import IntegrityError
from builder.files.disk import Sync, set_mode

CHUNK = 2**17
"""Bytes at a time: they stay in a processor's own cache. 1 MiB takes twice the CPU."""


@dataclass(frozen=True)
class Digest:
    """Size in bytes and hex sha256 of some bytes."""

    size: int
    sha256: str


@dataclass(frozen=True)
class LocalFile:
    """A file on this disk and what its bytes are."""

    path: Path
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name, which is also its asset's."""
        return self.path.name

    @property
    def digest(self) -> str:
        """The sha256 as release hosts write it: ``sha256:<hex>``."""
        return f"sha256:{self.sha256}"


class RunningDigest:
    """The digest of bytes that come one chunk after the other."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._size = 0

    def update(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._sha256.update(chunk)
        self._size += len(chunk)

    def put(self, start: int, chunk: bytes) -> None:
        """Take ``chunk`` of a file that grows at its end, written at ``start``; at 0 the file begins anew.

        A chunk behind bytes that were not taken is left to ``rest``.
        """
        if start == 0:
            self._sha256, self._size = hashlib.sha256(), 0
        if start == self._size:
            self.update(chunk)

    def rest(self, path: Path) -> Digest:
        """The digest of all of ``path``, of which what was not taken is read now. Raises ``OSError``."""
        with path.open("rb") as file:
            file.seek(self._size)
            for chunk in chunks_in(file):
                self.update(chunk)
        return self.digest

    @property
    def digest(self) -> Digest:
        """The digest of all bytes that were taken."""
        return Digest(self._size, self._sha256.hexdigest())


def chunks_in(stream: IO[bytes], step: int = CHUNK) -> Iterator[bytes]:
    """The rest of a stream, ``step`` bytes at a time."""
    return iter(lambda: stream.read(step), b"")


def chunks_of(path: Path, step: int = CHUNK) -> Iterator[bytes]:
    """The file's bytes. ``IntegrityError`` when it cannot be read, or was written to by the end."""
    try:
        with path.open("rb") as file:
            before = _state(file)
            yield from chunks_in(file, step)
            after = _state(file)
    except OSError as error:
        raise IntegrityError(
            f"{path} cannot be read: {error.strerror}. Check it and its mode, or delete it and build again."
        ) from error
    if before != after:
        raise IntegrityError(
            f"{path} changed while it was read. Let nothing else write there, and build again."
        )


def _state(file: IO[bytes]) -> Tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def file_digest(path: Path) -> Digest:
    """Size and sha256 of a file's bytes, one pass. Raises ``IntegrityError`` as ``chunks_of`` does."""
    running = RunningDigest()
    for chunk in chunks_of(path):
        running.update(chunk)
    return running.digest


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file. Raises ``OSError``."""
    return RunningDigest().rest(path).sha256


def require_bytes(path: Path, wanted: Digest, where: str, running: Optional[RunningDigest] = None) -> None:
    """``IntegrityError`` with wanted and got unless ``path`` has exactly the ``wanted`` bytes.

    ``running`` has taken the first of them already.
    """
    size = size_of(path)
    if size != wanted.size:
        raise other_bytes(f"{where}: size differs", f"{wanted.size} bytes", f"{size} bytes")
    sha256 = (running or RunningDigest()).rest(path).sha256
    if sha256 != wanted.sha256:
        what = f"{where}: sha256 differs, so it is not the file that was promised; nothing was unpacked"
        raise other_bytes(what, wanted.sha256, sha256)


def other_bytes(what: str, wanted: str, got: str) -> IntegrityError:
    """The error for a file that is not the one that was promised."""
    return IntegrityError(
        f"{what}.",
        details=(f"    wanted: {wanted}", f"    got:    {got}"),
        advice="Run the same command again. If it stays so, tell whoever publishes the file.",
    )


def has_bytes(path: Path, wanted: Digest) -> bool:
    """Whether ``path`` is a file of exactly the ``wanted`` bytes. One that cannot be read is not."""
    try:
        return path.is_file() and path.stat().st_size == wanted.size and sha256_of(path) == wanted.sha256
    except OSError:
        return False


def write_new(chunks: Iterable[bytes], target: Path, mode: int, sync: Optional[Sync] = None) -> Digest:
    """Write a new file, never through an existing name, and return its digest. Raises ``OSError``."""
    running = RunningDigest()
    with target.open("xb") as file:
        for chunk in chunks:
            running.update(chunk)
            file.write(chunk)
    set_mode(target, mode)
    if sync:
        sync(target)
    return running.digest


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
