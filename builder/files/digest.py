"""Size and sha256 of bytes that are read, written or downloaded."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Deque, Iterable, Iterator, List, Optional, Protocol, Tuple

from builder.errors import IntegrityError
from builder.files.disk import Sync, set_mode

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

CHUNK = 2**17
"""Bytes per read. They fit into a processor's own cache: with 1 MiB the CPU time doubles."""


@dataclass(frozen=True)
class Digest:
    """Size in bytes and hex sha256 of some bytes."""

    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.size} bytes, sha256 {self.sha256}"


@dataclass(frozen=True)
class LocalFile:
    """A file on this disk with the size in bytes and the hex sha256 of its content."""

    path: Path
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Return the file's name, which is also the name of its asset."""
        return self.path.name

    @property
    def digest(self) -> str:
        """Return the sha256 in the form of release hosts: ``sha256:<hex>``."""
        return f"sha256:{self.sha256}"

    @classmethod
    def of(cls, path: Path) -> LocalFile:
        """Return a file on this disk. Raises ``IntegrityError`` as ``chunks_of`` does."""
        digest = file_digest(path)
        return cls(path, digest.size, digest.sha256)


_BATCH = 4
"""Chunks that are handed to another thread at once: with one at a time the threads wait for each other."""

_WAITING = 4
"""The most batches that wait for another thread."""


class RunningDigest:
    """The digest of bytes that are passed in one chunk after the other.

    With a ``pool`` of one thread, that thread hashes, while the caller reads and writes the next chunks.
    """

    def __init__(self, pool: Optional[Executor] = None) -> None:
        self._pool = pool
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._batch: List[bytes] = []
        self._handed: Deque[Future[None]] = deque()

    def update(self, chunk: bytes) -> None:
        """Add the next bytes."""
        self._size += len(chunk)
        if self._pool is None:
            self._sha256.update(chunk)
            return
        self._batch.append(chunk)
        if len(self._batch) == _BATCH:
            self._handed.append(self._pool.submit(_hash, self._sha256, self._batch))
            self._batch = []
            if len(self._handed) > _WAITING:
                self._handed.popleft().result()

    def put(self, start: int, chunk: bytes) -> None:
        """Add ``chunk``, written at the offset ``start`` of a file; at 0 the digest is reset first.

        A chunk that does not begin where the added bytes end is ignored; ``rest`` reads its bytes later.
        """
        if start == 0:
            self._sha256, self._size, self._batch = hashlib.sha256(), 0, []
            self._handed.clear()
        if start == self._size:
            self.update(chunk)

    def rest(self, path: Path) -> Digest:
        """Add the bytes of ``path`` that were not added yet, and return its digest. Raises ``OSError``."""
        with path.open("rb") as file:
            file.seek(self._size)
            for chunk in chunks_in(file):
                self.update(chunk)
        return self.digest

    @property
    def digest(self) -> Digest:
        """Return the digest of all bytes that were added."""
        while self._handed:
            self._handed.popleft().result()
        _hash(self._sha256, self._batch)
        self._batch = []
        return Digest(self._size, self._sha256.hexdigest())


def named_digest(data: bytes) -> str:
    """Return the sha256 in the form of registries and release hosts: ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _hash(sha256: hashlib._Hash, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        sha256.update(chunk)


class Readable(Protocol):
    """A stream that is read forwards."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to ``size`` bytes; empty at the end."""


def chunks_in(stream: Readable, step: int = CHUNK, most: Optional[int] = None) -> Iterator[bytes]:
    """Yield the remaining bytes of a stream, or the next ``most`` of them, ``step`` bytes at a time."""
    left = step if most is None else most
    while chunk := stream.read(min(step, left)):
        yield chunk
        left -= 0 if most is None else len(chunk)


def chunks_of(path: Path, step: int = CHUNK) -> Iterator[bytes]:
    """Yield the file's bytes, ``step`` at a time.

    Raises ``IntegrityError`` when the file cannot be read, or has changed by the end.
    """
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


def stream_digest(stream: IO[bytes]) -> Digest:
    """Return size and sha256 of the remaining bytes of a stream."""
    return _digest(chunks_in(stream))


def file_digest(path: Path) -> Digest:
    """Return size and sha256 of a file. Raises ``IntegrityError`` as ``chunks_of`` does."""
    return _digest(chunks_of(path))


def _digest(chunks: Iterable[bytes]) -> Digest:
    running = RunningDigest()
    for chunk in chunks:
        running.update(chunk)
    return running.digest


def sha256_of(path: Path) -> str:
    """Return the hex sha256 of a file. Raises ``OSError``."""
    return RunningDigest().rest(path).sha256


def require_bytes(path: Path, wanted: Digest, where: str, running: Optional[RunningDigest] = None) -> None:
    """Raise ``IntegrityError`` unless ``path`` has exactly the ``wanted`` bytes.

    ``where`` begins the message. ``running`` has the digest of the file's first bytes already.
    """
    size = size_of(path)
    if size != wanted.size:
        raise other_bytes(f"{where}: size differs", f"{wanted.size} bytes", f"{size} bytes")
    sha256 = (running or RunningDigest()).rest(path).sha256
    if sha256 != wanted.sha256:
        what = f"{where}: sha256 differs, so it is not the file that was promised; nothing was unpacked"
        raise other_bytes(what, wanted.sha256, sha256)


def other_bytes(what: str, wanted: str, got: str) -> IntegrityError:
    """Return the error for a file whose bytes differ from the promised ones."""
    return IntegrityError(
        f"{what}.",
        details=(f"    wanted: {wanted}", f"    got:    {got}"),
        advice="Run the same command again. If it fails again, tell the publisher of the file.",
    )


def has_bytes(path: Path, wanted: Digest) -> bool:
    """Return whether ``path`` is a file of exactly the ``wanted`` bytes; false for an unreadable file."""
    try:
        return path.is_file() and path.stat().st_size == wanted.size and sha256_of(path) == wanted.sha256
    except OSError:
        return False


def write_new(chunks: Iterable[bytes], target: Path, mode: int, sync: Optional[Sync] = None) -> Digest:
    """Write a new file and return its digest.

    Raises ``OSError``, as ``FileExistsError`` where the name exists, so that no link is followed.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 ``env`` writes nothing

    with ThreadPoolExecutor(1) as pool, target.open("xb") as file:
        running = RunningDigest(pool)
        for chunk in chunks:
            running.update(chunk)
            file.write(chunk)
    set_mode(target, mode)
    if sync:
        sync(target)
    return running.digest


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 where there is no file."""
    return path.stat().st_size if path.exists() else 0
