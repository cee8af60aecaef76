"""Paths in packages and in wheels are not trusted: they must stay in their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence, Tuple

from builder.errors import IntegrityError
from builder.files.disk import set_mode
from builder.formats.package_names import FOLDER_MODE
from builder.formats.text import SURROGATE

_DEEPEST = 16
"""The most parts of a path; real packages have three. Thousands of nested folders could not be removed
again."""

OTHER_RELEASE = "Take it from another release, and tell whoever publishes this one."


def bad_package(where: str, why: str, details: Sequence[str] = ()) -> IntegrityError:
    """Return the error for an archive that is no valid package, even where its sha256 is right."""
    return IntegrityError(f"{where}: {why}", details=details, advice=OTHER_RELEASE)


def is_plain(path: str) -> bool:
    """Return whether a relative path is short and stays in its folder: no ``..``, drive or empty part."""
    parts = path.split("/")
    plain = all(part not in {"", ".", ".."} for part in parts)
    return plain and len(parts) <= _DEEPEST and not set(path) & set("\\:\0") and not SURROGATE.search(path)


def parts_of(path: str, where: str) -> Tuple[str, ...]:
    """Return the parts of a plain path.

    Raises ``IntegrityError``, whose message begins with ``where``, for any other path.
    """
    if not is_plain(path):
        raise bad_package(where, f"it names {path!r}, which does not lie in its folder")
    return tuple(path.split("/"))


def inside(name: str, top: str) -> Tuple[str, ...]:
    """Return the parts of a member's path below the archive's folder ``top``.

    Raises ``IntegrityError`` for a path that does not lie there.
    """
    first, *parts = parts_of(name, top)
    if first != top:
        raise IntegrityError(
            f"{top}: the archive holds {name!r}, which does not lie in its folder",
            cause="the folder in a package has the package's name",
            advice="If the file was renamed, give it its old name; else take it from another release.",
        )
    return tuple(parts)


def place_in(folder: Path, parts: Sequence[str]) -> Path:
    """Return the path of a member in ``folder``, after making the folders above it with a package's mode."""
    for end in range(1, len(parts)):
        made = folder.joinpath(*parts[:end])
        if not made.is_dir():
            made.mkdir()
            set_mode(made, FOLDER_MODE)
    return folder.joinpath(*parts)
