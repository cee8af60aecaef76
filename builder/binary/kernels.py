"""This module decides whether an image holds a kernel or a function, by a mark in its first bytes.

A cubin keeps function ``f`` in a section ``.text.f``, and the names of its sections follow its header; PTX
declares a kernel by ``.entry`` and a function by ``.func``. In a small image the mark is first searched for
in the stored bytes, because LZ4 stores the first occurrence of bytes as they are; if it is not there, the
image is unpacked. Larger images are taken to hold code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from builder.binary.elf_headers import LARGEST
from builder.binary.payloads.payload_bytes import Compression, unpack_beginning

CUBIN, PTX = b"\x7fELF", b".version"
"""The first bytes of a cubin, and a directive that every PTX has in its first bytes."""

_MARKS: Mapping[bytes, tuple[bytes, ...]] = {CUBIN: (b".text.",), PTX: (b".entry", b".func")}

NEAR = 512
"""Number of first bytes in which most marks are found."""

FAR = 1 << 16
"""Number of first bytes in which a mark is searched for at all."""

_LARGEST = 1 << 14
"""Most bytes of an image that is unpacked. Images without code or tables have some 2,000."""

_NAMES = 1 << 11
"""Number of a cubin's first bytes that name its first section with code, if it has one."""

MOST_JOINED = 1 << 14
"""Most joined images (``fatbin_format.JOINED``) whose beginning is unpacked; others count as code."""

MOST_UNPACKED = 2048
"""Most different images of a file that are unpacked; further ones are taken to hold code."""


class CodeFinder:
    """The test of one file's images for code. Images with the same stored bytes are unpacked only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}
        self._room = MOST_JOINED
        self._search = LARGEST

    def searchable(self, size: int) -> int:
        """Return how many of a bare cubin's ``size`` bytes may be searched, until ``LARGEST`` bytes were.

        Real cubins lie side by side; thousands that claim the same bytes would take hours.
        """
        most = min(size, self._search)
        self._search -= most
        return most

    def beginning(self, stored: bytes, packed: Compression) -> bytes:
        """Return about ``FAR`` unpacked bytes; empty after ``MOST_JOINED`` calls or if unpacking fails."""
        self._room -= 1
        return unpack_beginning(stored, packed, FAR) if self._room >= 0 else b""

    def holds_code(self, kind: bytes, packed: Compression, read: Callable[[int], bytes], size: int) -> bool:
        """Return whether an image of ``size`` unpacked bytes holds code; ``True`` if it cannot be decided.

        ``kind`` is ``CUBIN`` or ``PTX``; ``read(n)`` returns the image's first ``n`` stored bytes.
        """
        if size > _LARGEST:
            return True
        marks = _MARKS[kind]
        stored = read(NEAR)
        for mark in marks:
            if mark in stored:
                return True
        stored = read(FAR)
        if any(mark in stored for mark in marks) or len(stored) > _LARGEST:
            return True
        if stored not in self._known and len(self._known) < MOST_UNPACKED:
            whole = unpack_beginning(stored, packed, _NAMES if kind == CUBIN else _LARGEST)
            self._known[stored] = kind not in whole[:FAR] or any(mark in whole for mark in marks)
        return self._known.get(stored, True)
