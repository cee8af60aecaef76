"""Factories of Windows libraries, written by hand from Microsoft's "PE Format"."""

import struct
from collections.abc import Mapping, Sequence

BASE, ALIGNMENT = 0x180000000, 0x1000

X64, ARM64, X86 = 0x8664, 0xAA64, 0x14C

TEXT, DATA = 0x60000020, 0x40000040


def pe(
    sections: Mapping[str, bytes] | None = None,
    *,
    soname: str | None = None,
    needed: Sequence[str] = (),
    delayed: Sequence[str] = (),
    machine: int = X64,
    old_delayed: bool = False,
    forwards: Sequence[str] = (),
    exports: Sequence[str] = (),
    data: bytes = b"",
) -> bytes:
    """Return a DLL with these sections and directories, and without code. ``data`` is part of ``.rdata``.

    ``forwards``: the target of each export, as ``other.name``; these exports have numbers and no names.
    ``exports``: names of further exports, which lead nowhere.
    ``old_delayed``: delayed imports by address, in the form of Visual C++ 6; for ``X86`` alone.
    """
    directories = _Directories(soname, needed, delayed, old_delayed, forwards, exports)
    plan = {".rdata": directories.blob + data, **(sections or {})}
    wide = machine != X86
    optional = 112 + 16 * 8 if wide else 96 + 16 * 8
    at = 0x80 + 24 + optional + 40 * len(plan)
    table, body, address = b"", b"", ALIGNMENT
    for name, content in plan.items():
        body += bytes(-(at + len(body)) % 0x200)
        stored = content + bytes(-len(content) % 0x200)
        flags = TEXT if name == ".text" else DATA
        place = (len(content), address, len(stored), at + len(body), 0, 0, 0, 0, flags)
        table += name.encode()[:8].ljust(8, b"\0") + struct.pack("<IIIIIIHHI", *place)
        body += stored
        address += (len(content) // ALIGNMENT + 1) * ALIGNMENT
    dos = (b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)).ljust(0x80, b"\0")
    coff = b"PE\0\0" + struct.pack("<HHIIIHH", machine, len(plan), 0, 0, 0, optional, 0x2022)
    head = (
        struct.pack("<H22xQ76xI", 0x20B, BASE, 16) if wide else struct.pack("<H26xI60xI", 0x10B, BASE32, 16)
    )
    return dos + coff + head + directories.table + table + body


BASE32 = 0x10000000


class _Directories:
    """The export, import and delayed import directory, at the beginning of the first section."""

    def __init__(
        self,
        soname: str | None,
        needed: Sequence[str],
        delayed: Sequence[str],
        old: bool,
        forwards: Sequence[str],
        exports: Sequence[str],
    ) -> None:
        self.blob = b""
        places = [(0, 0)] * 16
        thunks = self._add(struct.pack("<QQ", 1 << 63 | 1, 0))
        names = [self._add(name.encode() + b"\0") for name in (*needed, *delayed)]
        if soname is not None:
            name = self._add(soname.encode() + b"\0")
            pointers = [self._add(text.encode() + b"\0") for text in exports]
            named = self._add(struct.pack(f"<{len(pointers)}I", *pointers))
            table, count = ALIGNMENT + len(self.blob), len(forwards)
            texts, starts = b"", []
            for forward in forwards:
                starts.append(table + 40 + 4 * count + len(texts))
                texts += forward.encode() + b"\0"
            head = struct.pack("<12xI4xIIII4x", name, count, len(exports), table + 40, named)
            places[0] = (
                self._add(head + struct.pack(f"<{count}I", *starts) + texts),
                40 + 4 * count + len(texts),
            )
        if needed:
            first = names[: len(needed)]
            rows = b"".join(struct.pack("<IIiII", thunks, 0, -1, name, thunks) for name in first)
            places[1] = (self._add(rows + bytes(20)), len(rows) + 20)
        if delayed:
            base = BASE32 if old else 0
            last = names[len(needed) :]
            rest = struct.pack("<IIIII", 0, *[thunks + base] * 2, 0, 0)
            rows = b"".join(struct.pack("<II4x", int(not old), name + base) + rest for name in last)
            places[13] = (self._add(rows + bytes(32)), len(rows) + 32)
        self.table = b"".join(struct.pack("<II", *place) for place in places)

    def _add(self, data: bytes) -> int:
        address = ALIGNMENT + len(self.blob)
        self.blob += data
        return address


def linked_pe(linked: bytes, *inputs: bytes) -> bytes:
    """Return a DLL with relocatable code, ``inputs``, and its device link, like bitsandbytes' for Windows.

    ``.rdata`` takes the page at ``ALIGNMENT``, so ``__nv_relfatbin`` begins at ``2 * ALIGNMENT``.
    """
    units = b"".join(inputs)
    at = BASE + 2 * ALIGNMENT + (len(units) // ALIGNMENT + 1) * ALIGNMENT
    wrappers = b"".join(struct.pack("<IIQQ", 0x466243B1, 1, BASE + 2 * ALIGNMENT, 0) for _ in inputs)
    wrappers += struct.pack("<IIQQ", 0x466243B1, 2, at, 0)
    return pe({"__nv_relfatbin": units, ".nv_fatbin": linked, ".nvFatBinSegment": wrappers}, soname="x.dll")
