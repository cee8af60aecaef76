"""Files that appear whole or not at all: written beside their name, synced, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Iterator, Tuple

from builder.files.disk import disk_errors, require_space, sync_folder
from builder.files.file_lock import locked


@contextmanager
def part_file(dest: Path, *, needed: int = 0) -> Iterator[IO[bytes]]:
    """A file to write that becomes ``dest`` when the block ends well, and vanishes when it raises.

    What a killed run left for the same ``dest`` is removed first; a part that another process or thread is
    writing is not, and whoever ends last wins. ``needed`` bytes must be free. Raises ``DiskError``.
    """
    with disk_errors(dest, needed):
        dest.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(dest)
        require_space(dest, needed)
        part, file = _locked_file(dest)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(dest)
            sync_folder(dest.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def scratch_folder(path: Path, *, needed: int) -> Iterator[Path]:
    """The path of a folder to make, for the block only: whatever is there then is removed at its end.

    What a killed run left for the same ``path`` is removed first. ``needed`` bytes must be free. Raises
    ``DiskError``.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(path)
        require_space(path, needed)
        outer, lock = _locked_folder(path)
    try:
        yield outer / path.name
    finally:
        shutil.rmtree(outer, ignore_errors=True)
        os.close(lock)


def _locked_file(dest: Path) -> Tuple[Path, IO[bytes]]:
    """A new part of ``dest``, locked; made anew when a search for orphans removed it before that."""
    while True:
        part = _fresh_part(dest)
        file = part.open("xb")
        if locked(file.fileno()) and part.exists():
            return part, file
        file.close()


def _locked_folder(dest: Path) -> Tuple[Path, int]:
    """A new folder beside ``dest``, and the descriptor that holds its lock; made anew like a file."""
    while True:
        part = _fresh_part(dest)
        part.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(part, os.O_RDONLY)
            if locked(descriptor) and part.exists():
                return part, descriptor
            os.close(descriptor)


def _fresh_part(dest: Path) -> Path:
    """A name that nobody else has; threads of one process share its number."""
    return dest.with_name(f"{dest.name}.part-{os.getpid()}-{secrets.token_hex(4)}")


def _remove_orphans(dest: Path) -> None:
    """Remove parts of ``dest`` that nobody writes any more: whose lock died with their writer."""
    for part in dest.parent.glob(f"{dest.name}.part-*"):
        with suppress(FileNotFoundError):
            _remove_unlocked(part)


def _remove_unlocked(part: Path) -> None:
    descriptor = os.open(part, os.O_RDONLY)
    try:
        if locked(descriptor):
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    finally:
        os.close(descriptor)
