"""A package's tree on disk as members: what lies there, not what a manifest says lies there."""

from __future__ import annotations

from pathlib import Path

from builder.core.content import vendor_of
from builder.core.package import MANIFEST, Member
from builder.errors import NothingToDoError

LIBRARIES = "lib"
UNKNOWN = "unknown"
"""``source`` and ``licence`` of a file that stands in a folder and says nothing of itself."""


def members_in(folder: Path) -> tuple[Member, ...]:
    """Every file of an unpacked package but its manifest; of a plain folder, its libraries. Sorted by path.

    A link is a member too, also one that leads nowhere. Raises ``NothingToDoError`` without any library.
    """
    members = _package(folder) if (folder / LIBRARIES).is_dir() else _plain(folder)
    if not any(member.path.startswith(f"{LIBRARIES}/") for member in members):
        raise NothingToDoError(
            f"No library in {folder}. Name a package, or a folder like the one that a package unpacks to "
            f"({MANIFEST}, {LIBRARIES}/)."
        )
    return members


def _package(folder: Path) -> tuple[Member, ...]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    members = (_member(file, file.relative_to(folder).as_posix()) for file in files)
    return tuple(member for member in members if member.path != MANIFEST)


def _plain(folder: Path) -> tuple[Member, ...]:
    files = sorted(path for path in folder.iterdir() if ".so" in path.name)
    named = (file for file in files if file.is_symlink() or not file.is_dir())
    return tuple(_member(file, f"{LIBRARIES}/{file.name}") for file in named)


def _member(file: Path, path: str) -> Member:
    return Member(path=path, file=file, source=UNKNOWN, licence=UNKNOWN, vendor=vendor_of(file.name))
