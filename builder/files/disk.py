"""Disk space, errors of writing, removal of files, and syncs that make files survive a power failure."""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterable, Iterator, TypeVar

from builder.errors import DISK_ADVICE, FULL_DISK, ConfigError, DiskError

Made = TypeVar("Made")

Sync = Callable[[Path], None]
"""``sync(path)`` for a file that is complete and closed. Raises ``OSError``."""


def disk_error(error: OSError, path: Path, needed: int = 0, also: str = "") -> DiskError:
    """Return the error for a failure to write ``path``, or a file in it, with advice by its errno.

    ``needed`` is the expected number of bytes, 0 where it is unknown. ``also`` is more advice.
    """
    if error.errno in FULL_DISK:
        expected = f"About {needed:,} bytes were expected, " if needed else ""
        room = f"{expected}{_free(path):,} bytes are free now."
        cause = f"the disk or a quota was full while it was written ({error.strerror})"
        return DiskError(
            f"{path} does not fit",
            cause=cause,
            advice=f"{room} Free space there and run again. {also}".rstrip(),
        )
    named = Path(error.filename) if isinstance(error.filename, str) else path
    above = named in path.parents
    shown = named if above or path in named.parents else path
    is_there = isinstance(error.filename, str) and is_folder(named.parent)
    advice = _advice(error.errno or 0, folder=above, is_there=is_there)
    cause = error.strerror or str(error)
    return DiskError(f"{shown} cannot be written", cause=cause, advice=f"{advice} {also}".strip())


def _advice(number: int, *, folder: bool, is_there: bool) -> str:
    """Return the remedy for an errno.

    ``folder``: the failure was in a folder above the file, which had to be made first. ``is_there``: the
    folder of what failed is still there.
    """
    if number == errno.ENOTDIR or (folder and number in {errno.ENOENT, errno.EEXIST}):
        return "No folder can be made there: choose another one."
    if number == errno.ENOENT and is_there:
        return "That folder takes nothing new, or something removes it at once: choose another one."
    if number == errno.ENOENT:
        return "Its folder was removed meanwhile: let nothing else write there, and run again."
    return DISK_ADVICE.get(number, "")


@contextmanager
def disk_errors(path: Path, needed: int = 0, also: str = "") -> Iterator[None]:
    """Raise ``disk_error``'s error in place of any ``OSError`` in the block."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, needed, also) from error


_FULL = ("no space left on device", "disk quota exceeded")
"""The messages of ENOSPC and EDQUOT, which Go writes in lower case."""


def says_full(lines: Iterable[str]) -> bool:
    """Return whether a program's output says that the disk or a quota is full, in any case of letters."""
    return any(words in line.lower() for line in lines for words in _FULL)


def require_space(path: Path, needed: int) -> None:
    """Raise ``DiskError`` unless ``needed`` bytes are free where ``path`` will be written."""
    free = _free(path)
    if free < needed:
        cause = f"about {needed:,} bytes are needed, {free:,} are free"
        raise DiskError(f"{path} does not fit", cause=cause, advice="Free space there and run again.")


_TRIES = 20


def made_again(make: Callable[[], Made]) -> Made:
    """Return what ``make`` returns, which makes a path and the folders above it.

    It is tried again where another process removes one of them meanwhile.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            return make()
    return make()


def is_writable(path: Path) -> bool:
    """Return whether this user may write to the folder ``path``, or make it."""
    try:
        there = next((folder for folder in (path, *path.absolute().parents) if folder.exists()), None)
    except OSError:  # a name that is too long, or no permission to look
        return False
    # Without ``there`` the path is on a drive of Windows that does not exist.
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _free(path: Path) -> int:
    """Return the free bytes of the disk of ``path``, or of the nearest folder above it that exists."""
    there = (path, *path.absolute().parents)
    return shutil.disk_usage(next(folder for folder in there if folder.is_dir())).free


def sync_file(path: Path) -> None:
    """Return when the bytes of ``path`` are on the disk. Raises ``OSError``."""
    with path.open("rb" if os.name == "posix" else "r+b") as file:  # Windows syncs only a writable handle
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the names in ``folder`` are on the disk; at once on Windows. Raises ``OSError``."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder; false without permission, where ``Path.is_dir`` raises."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file; false without permission, where ``Path.is_file`` raises."""
    return os.path.isfile(path)  # noqa: PTH113


_HELD = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION of Windows: a virus scanner has opened a new file."""

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)


def rename(path: Path, target: Path) -> None:
    """Rename ``path`` to ``target``; on Windows, wait up to 3 s while a program has it open.

    Raises ``OSError``.
    """
    for pause in _PAUSES:
        try:
            path.replace(target)
        except OSError as error:  # noqa: PERF203 a handful of tries
            if getattr(error, "winerror", None) not in _HELD:
                raise
            time.sleep(pause)
        else:
            return
    path.replace(target)


def set_mode(path: Path, mode: int) -> None:
    """Set the permission bits of a file or folder, unless the file system refuses, as FAT does.

    Raises ``OSError``.
    """
    with suppress(PermissionError):
        path.chmod(mode)


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield each path below ``folder`` at any depth; ``Path.rglob`` ends with ``RecursionError`` at 1,000.

    Links are not followed, and a folder without permission counts as empty. Raises ``OSError``.
    """
    folders = [folder]
    while folders:
        above = folders.pop()
        with suppress(PermissionError), os.scandir(above) as entries:
            for entry in entries:
                path = above / entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                yield path


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its content, if it exists. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except RecursionError as error:
            raise OSError(errno.ELOOP, "folders lie too deep in folders", str(path)) from error
    else:
        path.unlink(missing_ok=True)


def resolved(path: Path) -> Path:
    """Return ``path`` without links; links in a circle stay, which ``Path.resolve`` fails for."""
    return Path(os.path.realpath(path))


def absolute(path: Path) -> Path:
    """Return ``path`` as an absolute path, with ``~`` and ``~name`` replaced.

    Raises ``ConfigError`` where the home folder of that user is unknown, or the current folder was removed.
    """
    try:
        return path.expanduser().absolute()
    except (RuntimeError, KeyError) as error:  # KeyError: Python 3.9, for a user without an entry in passwd
        raise ConfigError(f"{path}: no home is known for that user. Write the path in full.") from error
    except FileNotFoundError as error:
        what = f"{path}: it is relative to the current folder, which was removed"
        raise ConfigError(what, advice="Change to another folder, or write the path in full.") from error
