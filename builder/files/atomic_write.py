"""Files are written whole or not at all: under a temporary name in their folder, synced, then renamed."""

from __future__ import annotations

import glob
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
    """Yield a file to write, which is renamed to ``dest`` when the block ends and removed when it raises.

    Parts of the same ``dest`` that killed processes left are removed first; those of living processes and
    threads stay. Of two that write at once, the last to end gives ``dest`` its content. ``needed`` bytes must
    be free. Raises ``DiskError``.
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


def write_file(dest: Path, data: bytes) -> None:
    """Write ``data`` to the file ``dest``, in place of an earlier one. Raises ``DiskError``."""
    with part_file(dest) as file:
        file.write(data)


@contextmanager
def scratch_folder(path: Path, *, needed: int) -> Iterator[Path]:
    """Yield the path of a folder that the block may make, and that is removed at the block's end.

    Folders of the same ``path`` that killed processes left are removed first. ``needed`` bytes must be free.
    Raises ``DiskError``.
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


def replace_folder(folder: Path, fresh: Path) -> None:
    """Put ``fresh`` in the place of ``folder``, which is moved beside ``fresh``, or stays if that fails.

    ``fresh`` is from ``scratch_folder``, which removes the earlier folder too. Raises ``OSError``, for a
    mount point among others.
    """
    old = fresh.with_name(f"{fresh.name}.old")
    if folder.exists():
        folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:  # an interrupt too, after which the folder of ``fresh`` is removed
        if old.exists():
            old.rename(folder)
        raise


def _locked_file(dest: Path) -> Tuple[Path, IO[bytes]]:
    """Return a new part of ``dest``, locked.

    Another process may remove the part as an orphan before it is locked; then the next is made.
    """
    while True:
        part = _fresh_part(dest)
        file = part.open("xb")
        if locked(file.fileno()) and part.exists():
            return part, file
        file.close()


def _locked_folder(dest: Path) -> Tuple[Path, int]:
    """Return a new folder beside ``dest`` and the descriptor that holds its lock.

    Another process may remove the folder as an orphan before it is locked; then the next is made.
    """
    while True:
        part = _fresh_part(dest)
        part.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(part, os.O_RDONLY)
            if locked(descriptor) and part.exists():
                return part, descriptor
            os.close(descriptor)


def _fresh_part(dest: Path) -> Path:
    """Return an unused name for a part; the random number keeps threads of one process apart."""
    return dest.with_name(f"{dest.name}.part-{os.getpid()}-{secrets.token_hex(4)}")


def _remove_orphans(dest: Path) -> None:
    """Remove the parts of ``dest`` that no process has locked: their writers have died.

    Those of other users stay, in a folder like ``/tmp``.
    """
    for part in dest.parent.glob(f"{glob.escape(dest.name)}.part-*"):
        with suppress(FileNotFoundError, PermissionError):
            _remove_unlocked(part)


def _remove_unlocked(part: Path) -> None:
    descriptor = os.open(part, os.O_RDONLY)
    try:
        if locked(descriptor):
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    finally:
        os.close(descriptor)
