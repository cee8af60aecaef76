"""The package in use, the history of packages in use, and the disk space that packages take.

The link ``current`` names the package in use; where links cannot be made, the file ``current.txt`` does.
Where both exist, the file takes precedence, so that at any moment of a switch exactly one package is in use.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

from builder.client.install.prefix import INFO, Prefix, write_text
from builder.errors import DiskError, NothingToDoError
from builder.files.disk import paths_below, remove, rename, sync_folder
from builder.formats.package_names import MANIFEST

_ELSEWHERE = "Move it away, or choose another folder with --prefix."

_LINE = re.compile(r"versions/([A-Za-z0-9][A-Za-z0-9._+-]*)\n?")


def folder_in_use(prefix: Prefix) -> Optional[Path]:
    """Return the folder of the package in use; ``None`` where no package is."""
    if prefix.pointer.is_file():
        folder = _named(prefix)
        return folder.resolve() if folder is not None and folder.is_dir() else None
    try:
        folder = prefix.current.resolve(strict=True)
    except (OSError, RuntimeError):  # absent, or a loop
        return None
    return folder if folder.is_dir() else None


def installed(prefix: Prefix) -> Path:
    """Return the folder of the package in use. Raises ``NothingToDoError`` where no package is."""
    folder = folder_in_use(prefix)
    if folder is None:
        raise NothingToDoError(f"No package is installed under {prefix.root}. Run install first.")
    return folder


def in_use(prefix: Prefix) -> Optional[str]:
    """Return the name of the folder of the package in use; ``None`` where no package is."""
    folder = folder_in_use(prefix)
    return folder.name if folder is not None else None


def stable_path(prefix: Prefix) -> Path:
    """Return a path to the package in use: the link, valid after the next install too, or the folder.

    Raises ``NothingToDoError`` where ``current.txt`` exists and no package is in use.
    """
    return installed(prefix) if prefix.pointer.is_file() else prefix.current.absolute()


def require_ours(prefix: Prefix) -> None:
    """Raise ``DiskError`` where ``current`` or ``current.txt`` exists and the client did not make it.

    Each is read once: another command may remove it at any moment.
    """
    link = prefix.current
    if _leads_elsewhere(link, prefix.versions):
        raise DiskError(f"{link} is in the way: it is no link to a package of ours. {_ELSEWHERE}")
    with suppress(FileNotFoundError):
        if _pointed(prefix) is None and prefix.pointer.exists():
            raise DiskError(f"{prefix.pointer} is in the way: it names no package of ours. {_ELSEWHERE}")


def switch(prefix: Prefix, folder: Path) -> None:
    """Make ``folder`` the package in use in one step: at any moment the old or the new one is in use."""
    link = prefix.part("current")
    try:
        _make_link(link, Path(os.path.relpath(folder, prefix.root)))
    except (OSError, NotImplementedError):
        _point(prefix, folder)
    else:
        try:
            link.replace(prefix.current)
        except PermissionError:  # Windows replaces no link to a folder: the file takes precedence meanwhile
            _point(prefix, folder)
            rename(link, prefix.current)
        prefix.pointer.unlink(missing_ok=True)
    sync_folder(prefix.root)


def _make_link(link: Path, folder: Path) -> None:
    link.symlink_to(folder, target_is_directory=True)
    if not link.is_symlink():  # Wine reports success and makes no link
        raise NotImplementedError


def _point(prefix: Prefix, folder: Path) -> None:
    write_text(prefix, prefix.pointer, f"versions/{folder.name}\n")
    prefix.current.unlink(missing_ok=True)


def detach(prefix: Prefix) -> None:
    """Leave no package in use: remove the link and ``current.txt``."""
    prefix.current.unlink(missing_ok=True)
    prefix.pointer.unlink(missing_ok=True)
    if prefix.root.is_dir():
        sync_folder(prefix.root)


def _named(prefix: Prefix) -> Optional[Path]:
    try:
        return _pointed(prefix)
    except FileNotFoundError:
        return None


def _pointed(prefix: Prefix) -> Optional[Path]:
    try:
        line = _LINE.fullmatch(prefix.pointer.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError):
        return None
    return prefix.versions / line[1] if line else None


def _leads_elsewhere(link: Path, folder: Path) -> bool:
    """Return whether ``link`` is there and does not lead into ``folder``."""
    try:
        target = link.parent / os.readlink(link)  # noqa: PTH115 Path.readlink comes with Python 3.9
        return target.resolve().parent != folder.resolve()
    except FileNotFoundError:
        return False
    except (OSError, RuntimeError):  # no link, or a loop
        return os.path.lexists(link)


_OURS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*-[0-9a-f]{12}")


def remember(prefix: Prefix, name: str) -> None:
    """Append ``name`` to the history. Call this before the switch to ``name``, with the lock held.

    The history is read only up to the package in use. So an entry whose switch did not happen has no effect,
    and a package that was rolled back from is dropped.
    """
    past = [known for known in _until_now(prefix) if known != name]
    lines = [*past, name]
    if lines != _read(prefix):
        write_text(prefix, prefix.history, "".join(f"{line}\n" for line in lines))


def previous_package(prefix: Prefix) -> Optional[str]:
    """Return the package in use before the current one; ``None`` where none is there."""
    past = _until_now(prefix)[:-1]
    return next((name for name in reversed(past) if (prefix.versions / name).is_dir()), None)


def versions(prefix: Prefix) -> Tuple[Path, ...]:
    """Return the folders of the packages that the client installed, sorted by name.

    A folder with a name that the client does not give, or with neither of the two files that describe a
    package, is left out.
    """
    try:
        there = list(prefix.versions.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    mine = (path for path in there if _OURS.fullmatch(path.name) and not path.is_symlink())
    return tuple(sorted(path for path in mine if any((path / name).is_file() for name in (MANIFEST, INFO))))


def remove_packages(prefix: Prefix, folders: Iterable[Path]) -> int:
    """Remove packages and return the number of bytes freed. The lock must be held.

    Each folder is renamed first, so that no package exists in part under its name. Raises ``OSError``.
    """
    gone = []
    for folder in folders:
        gone.append(prefix.part(f"dropped-{folder.name}"))
        rename(folder, gone[-1])
    freed = size_of_trees(gone)
    for folder in gone:
        remove(folder)
    return freed


def size_of_files(folder: Path) -> int:
    """Return the size in bytes of all files below ``folder``."""
    return sum(path.lstat().st_size for path in paths_below(folder) if path.is_file())


def size_of_trees(folders: Iterable[Path]) -> int:
    """Return the bytes freed by removing ``folders``. A file with a hard link elsewhere does not count."""
    seen: Dict[Tuple[int, int], List[int]] = {}
    for folder in folders:
        for path in paths_below(folder):
            stat = path.lstat()
            if path.is_file() and not path.is_symlink():
                known = seen.setdefault((stat.st_dev, stat.st_ino), [0, stat.st_nlink, stat.st_size])
                known[0] += 1
    return sum(size for names, links, size in seen.values() if names >= links)


def _until_now(prefix: Prefix) -> List[str]:
    """Return the history up to the package in use, its last entry; empty where no package is in use."""
    now = in_use(prefix)
    if now is None:
        return []
    past = _read(prefix)
    return past[: len(past) - past[::-1].index(now)] if now in past else [*past, now]


def _read(prefix: Prefix) -> List[str]:
    try:
        lines = prefix.history.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [line for line in lines if _OURS.fullmatch(line)]
