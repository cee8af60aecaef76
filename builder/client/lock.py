"""One install at a time per prefix: a lock that the system drops when its holder dies."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterator

_POLL_SECONDS = 0.2

if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def hold(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock ``path``, waiting for whoever has it; ``on_wait`` is called once before waiting."""
    with path.open("ab") as file:
        if not _taken(file):
            on_wait()
            while not _taken(file):
                time.sleep(_POLL_SECONDS)
        yield


def _taken(file: IO[bytes]) -> bool:
    try:
        _try(file)
    except (BlockingIOError, PermissionError):
        return False
    return True
