"""Removes installed packages, in an order that leaves a whole one in use or none, whenever it is killed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Tuple

from builder.client.current import detach, in_use
from builder.client.history import drop, versions
from builder.client.layout import Prefix, remove


@dataclass(frozen=True)
class Gone:
    """What was removed, and the bytes that the disk has free by it."""

    names: Tuple[str, ...]
    freed: int
    left: Tuple[Path, ...]
    """What lies under the prefix and is not ours."""


def remove_old(prefix: Prefix) -> Gone:
    """All but the package in use. Only with the lock held."""
    now = in_use(prefix)
    return _dropped(prefix, tuple(folder for folder in versions(prefix) if folder.name != now))


def remove_all(prefix: Prefix) -> Gone:
    """Everything of ours: first the pointer, then the packages, the lock last. Only with the lock held."""
    detach(prefix)
    gone = _dropped(prefix, versions(prefix))
    for path in (prefix.gpu_info, prefix.history, prefix.downloads, prefix.parts, prefix.lock):
        with suppress(PermissionError):  # Windows keeps the lock while it is held
            remove(path)
    for folder in (prefix.state, prefix.versions, prefix.root):
        with suppress(OSError):  # somebody else's things are in it
            folder.rmdir()
    left = tuple(sorted(prefix.root.iterdir())) if prefix.root.is_dir() else ()
    return Gone(gone.names, gone.freed, left)


def _dropped(prefix: Prefix, folders: Tuple[Path, ...]) -> Gone:
    freed = drop(prefix, folders)
    return Gone(tuple(folder.name for folder in folders), freed, ())
