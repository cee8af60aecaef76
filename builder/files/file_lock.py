"""Locks between processes, on a lock file or folder. The kernel releases a lock when its holder dies."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

from builder.files.disk import disk_errors, made_again

_POLL_SECONDS = 0.2

_TAKEN = (errno.EAGAIN, errno.EACCES, 0)
"""The errno of a lock that is held elsewhere, on Linux and macOS, on Windows, and under Wine, which gives
0."""

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def locked(descriptor: int) -> bool:
    """Lock an open file or folder until its descriptor is closed, and return true.

    Return false where another descriptor holds the lock. Raises ``OSError`` for any other failure.
    """
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return False
    return True


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock ``path`` exclusively; call ``waiting`` once where another process holds it.

    ``path`` is an existing folder, or a file that is made and kept. Where the holder removes the file, a
    waiting process makes and locks the next one. Raises ``DiskError`` where the file cannot be made or its
    file system has no locks.
    """
    announced = False
    while True:
        with _opened(path) as descriptor:
            while not _locked_at(path, descriptor):
                if not announced:
                    waiting()
                announced = True
                time.sleep(_POLL_SECONDS)
            if _still_there(descriptor, path):
                yield
                return


@contextmanager
def if_free(path: Path) -> Iterator[bool]:
    """Yield whether the lock was free; if so, hold it until the block ends. Raises ``DiskError``."""
    with _opened(path) as descriptor:
        yield _locked_at(path, descriptor)


def _locked_at(path: Path, descriptor: int) -> bool:
    with disk_errors(path):
        return locked(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    with disk_errors(path):
        descriptor = made_again(lambda: _open(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
