"""A scratch folder of files under numbers: no name from an archive is ever a name on this disk.

How much an archive may make of its size: a million files can be packed in 1 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from builder.adapters.files.part_file import disk_errors, require_space
from builder.adapters.untrusted.compressed import damage
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


_HEADERS, _HEADERS_FOR_A_BYTE = 1 << 23, 16
"""Bytes: 16,384 files, and one more for each 32 bytes, name and all."""

_LIBRARIES, _BYTES_FOR_A_LIBRARY = 4096, 512

_STACKED = 32
"""What laying one file over the others costs, measured against reading its header of 512 bytes."""


@dataclass
class Allowance:
    """What is left of it, for a whole source with all of its layers. All methods raise ``IntegrityError``."""

    what: str
    headers: int
    libraries: int

    @classmethod
    def of(cls, what: str, size: int) -> Allowance:
        """That of a source of ``size`` bytes."""
        return cls(what, _HEADERS + _HEADERS_FOR_A_BYTE * size, _LIBRARIES + size // _BYTES_FOR_A_LIBRARY)

    def take_headers(self, size: int) -> None:
        """So many bytes of headers are read."""
        self.headers -= size
        if self.headers < 0:
            raise self._used_up("files")

    def take_stacked(self, count: int) -> None:
        """So many files of layers are laid over each other."""
        self.take_headers(_STACKED * count)

    def take_libraries(self, count: int) -> None:
        """So many libraries are reported on."""
        self.libraries -= count
        if self.libraries < 0:
            raise self._used_up("libraries")

    def _used_up(self, things: str) -> IntegrityError:
        return IntegrityError(
            f"{self.what} has more {things} than belong into an archive of its size. If that is how it is "
            "meant, unpack it and name the folder."
        )
