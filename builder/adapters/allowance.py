"""How much an archive may make of its size: a million files can be packed in 1 MB."""

from __future__ import annotations

from dataclasses import dataclass

from builder.errors import IntegrityError

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
