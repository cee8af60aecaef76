"""One change at a time per prefix: a lock that the system drops when its holder dies."""

from __future__ import annotations

import os
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
    """Hold the lock ``path``, waiting for whoever has it; ``on_wait`` is called once before waiting.

    The file may be removed by who holds it: who waited for it then takes the lock of the file that is there.
    """
    waited = False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            while not _taken(file):
                if not waited:
                    on_wait()
                waited = True
                time.sleep(_POLL_SECONDS)
            if _still_there(file, path):
                yield
                return


def _taken(file: IO[bytes]) -> bool:
    try:
        _try(file)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _still_there(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
