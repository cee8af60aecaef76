"""Whether an image holds any code: a kernel or a function, by a mark that each image with one has.

A cubin keeps function ``f`` in a section ``.text.f``, and the names of its sections are the first thing
behind its header; PTX declares a kernel by ``.entry`` and a function by ``.func``. Of a small image the mark
is looked for in what is stored, for LZ4 leaves bytes that were not there before as they are; where it is not
found, the image is unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from builder.binary.payloads.payload_bytes import Compression, beginning

CUBIN, PTX = b"\x7fELF", b".version"
"""How a cubin begins, and what every PTX has at its beginning."""

_MARKS: Mapping[bytes, tuple[bytes, ...]] = {CUBIN: (b".text.",), PTX: (b".entry", b".func")}

NEAR = 512
"""Bytes in which most marks are found."""

FAR = 1 << 16
"""Bytes in which a mark is looked for at all."""

_LARGEST = 1 << 14
"""Bytes of an image that is unpacked; those without code have some 2,000, unless they hold tables."""

_NAMES = 1 << 11
"""Bytes of a cubin in which the first section with code is named, if there is one."""

MOST_JOINED = 1 << 14
"""Images packed as one whose beginning is unpacked; the rest is taken to hold code."""

MOST_UNPACKED = 2048
"""Different images that are unpacked of a file; the rest is taken to hold code."""


class CodeFinder:
    """Tells of one file's images which hold code; alike ones are unpacked once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}
        self._room = MOST_JOINED

    def beginning(self, stored: bytes, packed: Compression) -> bytes:
        """The first ``FAR`` bytes of what is packed; nothing once that was asked for too often."""
        self._room -= 1
        return beginning(stored, packed, FAR) if self._room >= 0 else b""

    def holds_code(self, kind: bytes, packed: Compression, read: Callable[[int], bytes], size: int) -> bool:
        """Whether an image of ``size`` bytes holds code; also where that cannot be told.

        ``kind`` is ``CUBIN`` or ``PTX``; ``read`` gives its first bytes as they are stored.
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
            whole = beginning(stored, packed, _NAMES if kind == CUBIN else _LARGEST)
            self._known[stored] = kind not in whole[:FAR] or any(mark in whole for mark in marks)
        return self._known.get(stored, True)
