"""Which package is in use: the link ``current``; where links cannot be made, the file ``current.txt``.

Where both are there the file counts, so that there is one answer at any moment of a switch.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Optional

from builder.client.layout import Prefix, sync_folder, write_text
from builder.errors import DiskError, NothingToDoError

Symlink = Callable[[Path, Path], None]
"""``symlink(target, link)``. Raises ``OSError`` or ``NotImplementedError`` where links cannot be made."""

_ELSEWHERE = "Move it away, or choose another folder with --prefix."
_LINE = re.compile(r"versions/([A-Za-z0-9][A-Za-z0-9._+-]*)\n?")


def make_symlink(target: Path, link: Path) -> None:
    """The real one."""
    link.symlink_to(target, target_is_directory=True)


def pointed(prefix: Prefix) -> Optional[Path]:
    """The folder of the package in use; ``None`` where there is none."""
    if prefix.pointer.is_file():
        folder = _named(prefix)
        return folder.resolve() if folder is not None and folder.is_dir() else None
    return prefix.current.resolve() if prefix.current.is_dir() else None


def installed(prefix: Prefix) -> Path:
    """As ``pointed``; ``NothingToDoError`` when none is installed."""
    folder = pointed(prefix)
    if folder is None:
        raise NothingToDoError(f"No package is installed under {prefix.root}. Run install first.")
    return folder


def in_use(prefix: Prefix) -> Optional[str]:
    """Name of the folder in use."""
    folder = pointed(prefix)
    return folder.name if folder is not None else None


def lasting(prefix: Prefix) -> Path:
    """A path to what is in use that stays true after the next install, where there is a link."""
    return installed(prefix) if prefix.pointer.is_file() else prefix.current.absolute()


def require_ours(prefix: Prefix) -> None:
    """``DiskError`` when ``current`` is there already and not ours to replace."""
    link = prefix.current
    if (link.is_symlink() or link.exists()) and not _leads_into(link, prefix.versions):
        raise DiskError(f"{link} is in the way: it is no link to a package of ours. {_ELSEWHERE}")
    if prefix.pointer.exists() and _named(prefix) is None:
        raise DiskError(f"{prefix.pointer} is in the way: it names no package of ours. {_ELSEWHERE}")


def switch(prefix: Prefix, folder: Path, symlink: Symlink) -> None:
    """Point at ``folder`` in one step: at any moment it is the old or the new one."""
    link = prefix.part("current")
    try:
        symlink(Path(os.path.relpath(folder, prefix.root)), link)
    except (OSError, NotImplementedError):
        write_text(prefix, prefix.pointer, f"versions/{folder.name}\n")
        prefix.current.unlink(missing_ok=True)
    else:
        link.replace(prefix.current)
        prefix.pointer.unlink(missing_ok=True)
    sync_folder(prefix.root)


def detach(prefix: Prefix) -> None:
    """Leave no package in use."""
    prefix.current.unlink(missing_ok=True)
    prefix.pointer.unlink(missing_ok=True)
    if prefix.root.is_dir():
        sync_folder(prefix.root)


def _named(prefix: Prefix) -> Optional[Path]:
    try:
        line = _LINE.fullmatch(prefix.pointer.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return prefix.versions / line[1] if line else None


def _leads_into(link: Path, folder: Path) -> bool:
    try:
        return link.is_symlink() and link.resolve().parent == folder.resolve()
    except (OSError, RuntimeError):  # a loop
        return False
