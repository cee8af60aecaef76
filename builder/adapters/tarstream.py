"""A tar stream of files on disk, made as it is read: a 750 MB library never lies in memory."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

_CHUNK = 1 << 20


def stream_files(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Tar bytes that hold each file under its absolute container path, parents included, mode 0755."""
    for parent in sorted({str(above) for name in files for above in PurePosixPath(name).parents}):
        if parent != "/":
            yield _directory(parent).tobuf(tarfile.PAX_FORMAT)
    for name, path in sorted(files.items()):
        yield from _member(name, path)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _directory(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _member(name: str, path: Path) -> Iterator[bytes]:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode = path.stat().st_size, 0o755
    yield info.tobuf(tarfile.PAX_FORMAT)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
