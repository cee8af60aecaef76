"""Which packages were in use before, and how much room they take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

from builder.client.current import in_use
from builder.client.extract import MANIFEST
from builder.client.layout import Prefix, remove, write_text

_OURS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*-[0-9a-f]{12}")


def remember(prefix: Prefix, name: str) -> None:
    """Note that ``name`` is about to be switched to, with the lock held.

    It is noted before the switch, and read as far as to what is in use: so a kill between the two does no
    harm, and what was rolled back from does not come back.
    """
    past = [known for known in _until_now(prefix) if known != name]
    lines = [*past, name]
    if lines != _read(prefix):
        write_text(prefix, prefix.history, "".join(f"{line}\n" for line in lines))


def before(prefix: Prefix) -> Optional[str]:
    """The package that was in use before the one in use, if it is still there."""
    past = _until_now(prefix)[:-1]
    return next((name for name in reversed(past) if (prefix.versions / name).is_dir()), None)


def versions(prefix: Prefix) -> Tuple[Path, ...]:
    """The folders of packages that we installed, by name; somebody else's are none of ours."""
    if not prefix.versions.is_dir():
        return ()
    mine = (
        path for path in prefix.versions.iterdir() if _OURS.fullmatch(path.name) and not path.is_symlink()
    )
    return tuple(sorted(path for path in mine if (path / MANIFEST).is_file()))


def drop(prefix: Prefix, folders: Iterable[Path]) -> int:
    """Remove packages, with the lock held; bytes that this gives back.

    Each loses its name in one step first, so that none is ever there in part.
    """
    gone = []
    for folder in folders:
        gone.append(prefix.part(f"dropped-{folder.name}"))
        folder.replace(gone[-1])
    freed = size_of_trees(gone)
    for folder in gone:
        remove(folder)
    return freed


def size_of_files(folder: Path) -> int:
    """Bytes of all files below ``folder``."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def size_of_trees(folders: Iterable[Path]) -> int:
    """Bytes that the disk has free once ``folders`` are gone: a file with another name elsewhere stays."""
    seen: Dict[Tuple[int, int], List[int]] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            stat = path.lstat()
            if path.is_file() and not path.is_symlink():
                known = seen.setdefault((stat.st_dev, stat.st_ino), [0, stat.st_nlink, stat.st_size])
                known[0] += 1
    return sum(size for names, links, size in seen.values() if names >= links)


def _until_now(prefix: Prefix) -> List[str]:
    """The history up to what is in use, which is its last entry; empty where nothing is."""
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
