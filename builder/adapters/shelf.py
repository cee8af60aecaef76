"""A scratch folder of files under numbers: no name from an archive is ever a name on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from builder.adapters.compressed import damage
from builder.adapters.partfile import disk_errors, require_space
from builder.errors import IntegrityError

_CHUNK = 1 << 20


class Shelf:
    """Keeps the bytes of libraries that stand in archives."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made here and removed by whoever handed it over."""
        self._folder = folder
        self._count = 0
        with disk_errors(folder):
            folder.mkdir()

    def place(self) -> Path:
        """A path in the folder that no file has yet."""
        self._count += 1
        return self._folder / str(self._count)

    def keep(self, stream: IO[bytes], size: int, what: str) -> Path:
        """The ``size`` bytes of ``what`` as a file. Raises ``DiskError`` before the disk is full."""
        path = self.place()
        self.require(size, what)
        with disk_errors(path, size), path.open("xb") as file:
            for chunk in _chunks(stream, size, what):
                file.write(chunk)
        return path

    def require(self, size: int, what: str) -> None:
        """``DiskError`` unless ``size`` bytes, which ``what`` says it has, are free."""
        require_space(self._folder / what.rpartition("/")[2], size)


def _chunks(stream: IO[bytes], size: int, what: str) -> Iterator[bytes]:
    """Exactly ``size`` bytes, however many the stream would go on to give."""
    left = size
    while left:
        with damage(what):
            chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            raise IntegrityError(
                f"{what} ends {left:,} bytes before the size that its header says ({size:,}). "
                "It may be damaged or cut short; fetch or make it again."
            )
        left -= len(chunk)
        yield chunk
