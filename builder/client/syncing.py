"""Makes files outlive a power cut, beside the writing of the next ones: a disk takes its time for it."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List

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
