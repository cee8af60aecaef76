"""Files that appear whole or not at all: written beside their name, locked, synced, then renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from builder.errors import DiskError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
    """A folder not yet made, inside one that goes with the block. See ``package.archive.Archive.scratch``."""
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


def require_space(path: Path, needed: int) -> None:
    """``DiskError`` unless ``needed`` bytes are free where ``path`` will be."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _no_space(path, needed, free)


@contextmanager
def disk_errors(path: Path, needed: int = 0) -> Iterator[None]:
    """Turn any ``OSError`` of writing ``path`` into a ``DiskError`` that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            folder = next(parent for parent in path.absolute().parents if parent.is_dir())
            raise _filled_up(path, needed, shutil.disk_usage(folder).free) from error
        raise DiskError(
            f"{path} cannot be written: {error.strerror}. Check the folder's owner and mode."
        ) from error


def _no_space(path: Path, needed: int, free: int) -> DiskError:
    return DiskError(
        f"{path} does not fit: about {needed:,} bytes are needed, {free:,} are free. "
        "Free space there and run again."
    )


def _filled_up(path: Path, needed: int, free: int) -> DiskError:
    expected = f" About {needed:,} bytes were expected." if needed else ""
    return DiskError(
        f"{path} does not fit: the disk or a quota was full while it was written.{expected} What was written "
        f"is removed, {free:,} bytes are free now. Free space there and run again."
    )


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut."""
    descriptor = _open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked_file(dest: Path) -> tuple[Path, IO[bytes]]:
    """A new part of ``dest``, locked. One that a search for orphans took before it was is made anew."""
    while True:
        part = _fresh_part(dest)
        file = part.open("xb")
        if _locked(part, file.fileno()):
            return part, file
        file.close()


def _locked_folder(dest: Path) -> tuple[Path, int]:
    """The same for a folder; its descriptor holds the lock."""
    while True:
        part = _fresh_part(dest)
        part.mkdir()
        with suppress(FileNotFoundError):
            descriptor = _open_folder(part)
            if _locked(part, descriptor):
                return part, descriptor
            os.close(descriptor)


def _fresh_part(dest: Path) -> Path:
    """A name nobody else has: threads of one process have the same number."""
    return dest.with_name(f"{dest.name}.part-{os.getpid()}-{secrets.token_hex(4)}")


def _locked(part: Path, descriptor: int) -> bool:
    """Lock ``part``; whether it is still there then."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return part.exists()


def _remove_orphans(dest: Path) -> None:
    """Whoever writes a part holds its lock, and the lock dies with its process."""
    for part in dest.parent.glob(f"{dest.name}.part-*"):
        with suppress(FileNotFoundError):
            _remove_unlocked(part)


def _remove_unlocked(part: Path) -> None:
    descriptor = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
