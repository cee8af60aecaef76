"""This module leads ONNX Runtime to a package's provider in place of the one in its own wheel.

Before 1.24 it opens ``libonnxruntime_providers_cuda.so`` by its name. The loader does not find a loaded
library by this name, since the file has no ``DT_SONAME``. It finds an alias: a library without code that has
one, and whose NEEDED entry is the path of the package's file. ``dlsym`` on an alias also searches the
libraries that the alias needs (dlsym(3)).

From 1.24 on it opens the file that lies beside its own library, and asks dladdr(3) where that is
(``GetRuntimePath`` in ``onnxruntime/core/platform/posix/env.cc``). dladdr answers with the name in the
loader's link map (``<link.h>``), so that name is changed.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from pathlib import Path

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
"""Layouts of ``Elf64_Ehdr``, ``Elf64_Phdr`` and ``Elf64_Dyn``: elf(5)."""

_DYN, _LOAD, _DYNAMIC, _GNU_STACK, _READ_WRITE = 3, 1, 2, 0x6474E551, 6
_NULL, _NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 0, 1, 4, 5, 6, 10, 11, 14
_SYMBOL, _PAGE = 24, 4096

_LINK_MAP, _LOADED = 2, os.RTLD_NOW | 4
"""dlinfo's ``RTLD_DI_LINKMAP``, and dlopen's mode for a library that is loaded already."""

_names: list[bytes] = []
"""The names that the loader has been given, which must stay in memory."""


def let_lie_in(folder: Path, library: Path) -> None:
    """Let dladdr say that the loaded ``library`` lies in ``folder``. Raises ``OSError``."""
    libc, found = ctypes.CDLL(None), ctypes.POINTER(ctypes.c_char_p)()  # l_addr, l_name, …
    libc.dlopen.restype = ctypes.c_void_p
    handle = libc.dlopen(os.fsencode(library), _LOADED)
    if not handle or libc.dlinfo(ctypes.c_void_p(handle), _LINK_MAP, ctypes.byref(found)):
        raise OSError(f"the loader does not know {library}")
    _names.append(os.fsencode(folder / library.name))
    found[1] = _names[-1]


def load_as(name: str, file: Path) -> None:
    """Load ``file`` so that ``dlopen(name)`` finds it from then on. Raises ``OSError``."""
    with tempfile.TemporaryDirectory(prefix="ortpacks-alias-") as folder:
        alias = Path(folder) / name
        alias.write_bytes(alias_of(name, file))
        ctypes.CDLL(str(alias), mode=ctypes.RTLD_GLOBAL)


def alias_of(name: str, file: Path) -> bytes:
    """Return the bytes of the alias, a shared library for the machine of ``file``. Raises ``OSError``."""
    with file.open("rb") as library:
        (machine,) = struct.unpack_from("<H", library.read(20), 18)
    strings = b"\0" + name.encode() + b"\0" + os.fsencode(file.resolve()) + b"\0"
    symbols = _HEADER.size + 3 * _SEGMENT.size
    table = symbols + _SYMBOL
    text = table + 16
    dynamic = (text + len(strings) + 7) & ~7
    entries = [
        (_SONAME, 1),
        (_NEEDED, len(name) + 2),
        (_HASH, table),
        (_STRTAB, text),
        (_STRSZ, len(strings)),
        (_SYMTAB, symbols),
        (_SYMENT, _SYMBOL),
        (_NULL, 0),
    ]
    size = dynamic + len(entries) * _ENTRY.size
    made = bytearray(size)
    ident = (b"\x7fELF", 2, 1, 1, 0, 0)  # 64 bits, little-endian
    sizes = (_HEADER.size, _SEGMENT.size, 3, 0, 0, 0)
    _HEADER.pack_into(made, 0, *ident, _DYN, machine, 1, 0, _HEADER.size, 0, 0, *sizes)
    segments = [
        (_LOAD, _READ_WRITE, 0, 0, 0, size, size, _PAGE),
        (_DYNAMIC, _READ_WRITE, dynamic, dynamic, dynamic, size - dynamic, size - dynamic, 8),
        (_GNU_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16),
    ]
    for number, segment in enumerate(segments):
        _SEGMENT.pack_into(made, _HEADER.size + number * _SEGMENT.size, *segment)
    struct.pack_into("<IIII", made, table, 1, 1, 0, 0)  # one bucket, one symbol: the undefined one
    made[text : text + len(strings)] = strings
    for number, entry in enumerate(entries):
        _ENTRY.pack_into(made, dynamic + number * _ENTRY.size, *entry)
    return bytes(made)
