"""A package's tree on disk as members: what lies there, not what a manifest says lies there.

A tar stream of files on disk, made as it is read: a 750 MB library never lies in memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from builder.errors import NothingToDoError
from builder.package.archive import MANIFEST, Member
from builder.package.contents import vendor_of

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


_CHUNK = 1 << 20


def stream_files(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Tar bytes that hold each file under its absolute container path, parents included, mode 0755."""
    for parent in sorted({str(above) for name in files for above in PurePosixPath(name).parents}):
        if parent != "/":
            yield _directory(parent).tobuf(tarfile.PAX_FORMAT)
    for name, path in sorted(files.items()):
        yield from _tar_member(name, path)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _directory(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _tar_member(name: str, path: Path) -> Iterator[bytes]:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode = path.stat().st_size, 0o755
    yield info.tobuf(tarfile.PAX_FORMAT)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
