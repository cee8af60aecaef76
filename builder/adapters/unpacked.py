"""A package's tree on disk as members: what lies there, not what a manifest says lies there."""

from __future__ import annotations

from pathlib import Path

from builder.core.content import vendor_of
from builder.core.package import MANIFEST, Member
from builder.errors import NothingToDoError

_LIBRARIES = "lib"
UNKNOWN = "unknown"
"""``source`` and ``licence`` of a file that stands in a folder and says nothing of itself."""


def members_in(folder: Path) -> tuple[Member, ...]:
    """The libraries of an unpacked package, of its ``lib`` or of any folder of libraries, sorted by name.

    A link is a member too, also one that leads nowhere. Raises ``NothingToDoError`` without any library.
    """
    where = folder / _LIBRARIES if (folder / _LIBRARIES).is_dir() else folder
    files = sorted(path for path in where.iterdir() if ".so" in path.name and not path.is_dir())
    if not files:
        raise NothingToDoError(
            f"No library in {where}. Name a package, or a folder like the one that a package unpacks to "
            f"({MANIFEST}, {_LIBRARIES}/)."
        )
    return tuple(_member(file) for file in files)


def _member(file: Path) -> Member:
    path = f"{_LIBRARIES}/{file.name}"
    return Member(path=path, file=file, source=UNKNOWN, licence=UNKNOWN, vendor=vendor_of(file.name))
