"""Writer of a shared library of functions that count their calls and return success, without a compiler.

These are the functions of NVIDIA's libraries that a provider needs and the stand-in does not define; they
differ between versions of ONNX Runtime. Sources of the format: the System V ABI and its x86-64 supplement.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_PAGE = 0x1000
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION, _GLOBAL, _TEXT_SECTION = 2, 1, 1
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_EXECUTE, _READ_WRITE = 5, 6
_NEEDED = 1
_HASH, _STRINGS, _SYMBOLS, _RELA, _RELA_SIZE, _RELA_ENTRY, _STRINGS_SIZE, _SYMBOL_ENTRY = range(4, 12)
_GLOB_DAT = 6
_COUNT, _MAKE = b"\x48\x8d\x3d", b"\x48\x8d\x35"
"""``lea rdi`` and ``lea rsi``: load the function's name as the first argument, or as the second one."""
_JUMP = b"\xff\x25"
"""``jmp`` to an address in a table."""
_STUB_SIZE = 16
_HELPERS = ("counted", "made")
"""The functions of runtime.c that stubs jump to."""
_HEADERS = 64 + 4 * 56


def stub_library(names: Sequence[str], *, needs: str) -> bytes:
    """Return the bytes of a shared library for x86-64 that defines the functions ``names``.

    The library has a NEEDED entry for ``needs``, so that functions of that library are found through it too.
    Each function counts its calls. A function with ``Create`` in its name also returns a block of zeros as a
    handle, except cuFFT's, whose handles are numbers.
    """
    strings, places = _strings([*_HELPERS, *names, needs])
    symbols_at = _HEADERS
    hash_at = symbols_at + _SYMBOL.size * (1 + len(_HELPERS) + len(names))
    hashes = _hash_table([*_HELPERS, *names])
    strings_at = hash_at + len(hashes)
    text_at = -(-(strings_at + len(strings)) // _STUB_SIZE) * _STUB_SIZE
    relocations_at = text_at + _STUB_SIZE * len(names)
    dynamic_at = -(-(relocations_at + 24 * len(_HELPERS)) // _PAGE) * _PAGE
    table_at = dynamic_at + 16 * 10
    entries = [(places[name], 0, 0) for name in _HELPERS]
    entries += [(places[name], _TEXT_SECTION, text_at + _STUB_SIZE * at) for at, name in enumerate(names)]
    symbols = bytes(_SYMBOL.size) + b"".join(
        _SYMBOL.pack(name, _GLOBAL << 4 | _FUNCTION, 0, section, value, _STUB_SIZE if section else 0)
        for name, section, value in entries
    )
    text = b"".join(
        _stub(name, text_at + _STUB_SIZE * at, strings_at + places[name], table_at)
        for at, name in enumerate(names)
    )
    relocations = b"".join(
        struct.pack("<QQq", table_at + 8 * at, (at + 1) << 32 | _GLOB_DAT, 0) for at in range(len(_HELPERS))
    )
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            (_NEEDED, places[needs]),
            (_HASH, hash_at),
            (_STRINGS, strings_at),
            (_SYMBOLS, symbols_at),
            (_RELA, relocations_at),
            (_RELA_SIZE, len(relocations)),
            (_RELA_ENTRY, 24),
            (_STRINGS_SIZE, len(strings)),
            (_SYMBOL_ENTRY, _SYMBOL.size),
            (0, 0),
        )
    )
    readable = (
        _headers(relocations_at + len(relocations), dynamic_at, len(dynamic)) + symbols + hashes + strings
    )
    code = readable.ljust(text_at, b"\0") + text + relocations
    return code.ljust(dynamic_at, b"\0") + dynamic + bytes(8 * len(_HELPERS))


def _strings(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Return the string table, and the offset of each name in it."""
    table, places = bytearray(b"\0"), {}
    for name in names:
        places[name] = len(table)
        table += name.encode("ascii") + b"\0"
    return bytes(table), places


def _stub(name: str, at: int, text: int, table: int) -> bytes:
    makes = "Create" in name and not name.startswith("cufft")
    load, slot = (_MAKE, table + 8) if makes else (_COUNT, table)
    code = load + struct.pack("<i", text - (at + 7)) + _JUMP + struct.pack("<i", slot - (at + 13))
    return code.ljust(_STUB_SIZE, b"\xcc")


def _hash_table(names: Sequence[str]) -> bytes:
    """Return the DT_HASH table of the symbols, the null symbol first, with as many buckets as names."""
    buckets, chains = [0] * len(names), [0] * (1 + len(names))
    for index, name in enumerate(names, start=1):
        bucket = _hash(name) % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    numbers = (len(buckets), len(chains), *buckets, *chains)
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode("ascii"):
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _headers(code_size: int, dynamic_at: int, dynamic_size: int) -> bytes:
    writable = dynamic_size + 8 * len(_HELPERS)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    file = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)
    segments = (
        (_LOAD, _READ_EXECUTE, 0, code_size, _PAGE),
        (_LOAD, _READ_WRITE, dynamic_at, writable, _PAGE),
        (_DYNAMIC, _READ_WRITE, dynamic_at, dynamic_size, 8),
        (_STACK, _READ_WRITE, 0, 0, 16),
    )
    table = (
        struct.pack("<IIQQQQQQ", *kind, at, at, at, size, size, align) for *kind, at, size, align in segments
    )
    return ident + file + b"".join(table)
