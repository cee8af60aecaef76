"""Makes files outlive a power cut, beside the writing of the next ones: a disk takes its time for it.

Files by content: sha256, size, and the proof that they are what was promised.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional

from builder.errors import IntegrityError

Sync = Callable[[Path], None]
"""``sync(path)`` of a file that is whole and closed. Raises ``OSError``."""


def sync_file(path: Path) -> None:
    """Return when ``path`` is on the disk."""
    with path.open("r+b") as file:  # Windows syncs only what may be written
        os.fsync(file.fileno())


@contextmanager
def syncing() -> Iterator[Sync]:
    """A ``sync`` that only begins. The end of the ``with`` waits for all, and raises what went wrong."""
    begun: List[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        yield lambda path: begun.append(pool.submit(sync_file, path))
        for done in begun:
            done.result()


CHUNK = 2**17
"""Bytes at a time: they stay in a processor's own cache. 1 MiB takes twice the CPU."""


class Growing:
    """The sha256 of a file that grows at its end, taken on the way: nothing is read a second time."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._upto = 0

    def put(self, start: int, chunk: bytes) -> None:
        """``chunk`` is written at ``start``; at 0 the file begins anew."""
        if start == 0:
            self._digest, self._upto = hashlib.sha256(), 0
        if start == self._upto:
            self._digest.update(chunk)
            self._upto += len(chunk)

    def of(self, path: Path) -> str:
        """Hex digest of all of ``path``; what was not put is read."""
        with path.open("rb") as file:
            file.seek(self._upto)
            for chunk in iter(lambda: file.read(CHUNK), b""):
                self._digest.update(chunk)
        return self._digest.hexdigest()


def require_bytes(path: Path, size: int, sha256: str, where: str, begun: Optional[Growing] = None) -> None:
    """``IntegrityError`` with wanted and got unless ``path`` is exactly these bytes."""
    got = size_of(path)
    if got != size:
        raise IntegrityError(f"{where}: size differs.\n    wanted: {size} bytes\n    got:    {got} bytes")
    digest = (begun or Growing()).of(path)
    if digest != sha256:
        raise IntegrityError(
            f"{where}: sha256 differs, so it is not the file that was promised; nothing was unpacked.\n"
            f"    wanted: {sha256}\n    got:    {digest}"
        )


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    return Growing().of(path)


def write_file(source: IO[bytes], target: Path, mode: int, sync: Sync = sync_file) -> str:
    """Copy to a new file, never through an existing name, and return the sha256 of what was written."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            digest.update(chunk)
            file.write(chunk)
    target.chmod(mode)
    sync(target)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
