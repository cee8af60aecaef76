"""Libraries with dynamic symbols and versions, byte for byte.

Sources: the System V ABI, chapter "Symbol Table", and the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.factories.binaries import RW, _file, _Strings

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
DEFAULT, INTERNAL, HIDDEN, PROTECTED = 0, 1, 2, 3
HERE, UNDEFINED, ABSOLUTE = 2, 0, 0xFFF1
NOT_DEFAULT = 0x8000
"""Set in the version index of a symbol that a linker would not choose by itself: ``name@VERSION``."""


@dataclass(frozen=True)
class Row:
    """One row of ``.dynsym``. ``version`` is its entry in ``.gnu.version``: 1 for none, else an index."""

    name: str
    section: int = HERE
    version: int = 1
    binding: int = GLOBAL
    visibility: int = DEFAULT


def linked(
    *rows: Row,
    needed: Sequence[str] = (),
    runpath: str | None = None,
    asked: Mapping[str, Mapping[int, str]] | None = None,
    defined: Mapping[int, str] | None = None,
    versions: bool = True,
) -> bytes:
    """``asked``: versions by index and library; ``defined``: its own; ``versions``: whether they are used."""
    strings = _Strings()
    tags = [(1, strings.add(name)) for name in needed]
    tags += [(29, strings.add(runpath))] if runpath else []
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in [*tags, (0, 0)])
    symbols = bytes(24) + b"".join(_symbol(row, strings) for row in rows)
    indices = struct.pack(f"<{len(rows) + 1}H", 0, *(row.version for row in rows))
    plan = [(".dynsym", 11, symbols, 1), (".dynamic", 6, dynamic, 1)]
    plan += [(".gnu.version", 0x6FFFFFFF, indices, 2)] if versions else []
    plan += [(".gnu.version_r", 0x6FFFFFFE, _asked(asked, strings), 1)] if asked else []
    plan += [(".gnu.version_d", 0x6FFFFFFD, _defined(defined, strings), 1)] if defined else []
    return _file([("", 0, b"", 0), (".dynstr", 3, strings.blob, 0), *plan], RW)


def _symbol(row: Row, strings: _Strings) -> bytes:
    info, value = row.binding << 4 | 2, 0x1000 if row.section else 0
    return struct.pack("<IBBHQQ", strings.add(row.name), info, row.visibility, row.section, value, 8)


def _asked(asked: Mapping[str, Mapping[int, str]], strings: _Strings) -> bytes:
    blob, left = b"", len(asked)
    for library, versions in asked.items():
        left -= 1
        following = 16 + 16 * len(versions) if left else 0
        blob += struct.pack("<HHIII", 1, len(versions), strings.add(library), 16, following)
        last = max(versions)
        for index, name in sorted(versions.items()):
            blob += struct.pack("<IHHII", 0, 0, index, strings.add(name), 0 if index == last else 16)
    return blob


def _defined(defined: Mapping[int, str], strings: _Strings) -> bytes:
    blob, last = b"", max(defined)
    for index, name in sorted(defined.items()):
        flags, following = int(index == 1), 0 if index == last else 28
        blob += struct.pack("<HHHHIII", 1, flags, index, 1, 0, 20, following)
        blob += struct.pack("<II", strings.add(name), 0)
    return blob
