"""Factory of a loadable library for x86-64 Linux that states to be ONNX Runtime, written without a compiler.

``OrtGetApiBase`` returns a table of functions that succeed without a result, refuse, crash or hang. The file
follows the System V ABI, chapters 4 and 5: one loaded segment, a dynamic section, one symbol.
"""

import struct
from collections.abc import Collection, Mapping

APPEND_CUDA, CREATE_SESSION = 204, 7
"""Indices of functions in ``OrtApi``. Source: onnxruntime_c_api.h of 1.23."""
_GET_ERROR_MESSAGE = 2
_PLACES = 300
"""Number of functions in the table."""

_CODE, _SLOT = 64 + 3 * 56, 16
"""Offset of the code, behind the headers, and bytes for each function."""
_FUNCTIONS = ("base", "api", "version", "message", "succeed", "refuse", "crash", "hang")
_VERSION = _CODE + _SLOT * len(_FUNCTIONS)
_MESSAGE = _VERSION + 32
_STRINGS = _MESSAGE + 256
_HASH = _STRINGS + 64
_SYMBOLS = _HASH + 24
_VERNEED = _SYMBOLS + 48
_BASE = _VERNEED + 32
_TABLE = _BASE + 16
_RELA = _TABLE + 8 * _PLACES
_DYNAMIC = _RELA + 24 * (_PLACES + 2)


def library(
    version: str,
    *,
    refuses: Collection[int] = (),
    why: str = "",
    crashes: Collection[int] = (),
    hangs: Collection[int] = (),
    needs_glibc: str = "",
) -> bytes:
    """Return a library of ONNX Runtime ``version``.

    ``refuses``, ``crashes`` and ``hangs`` are indices in ``OrtApi``; the message of a refusal is ``why``.
    ``needs_glibc="9.99"``: the library needs a symbol version of glibc that no system has.
    """
    strings = b"\0OrtGetApiBase\0libc.so.6\0" + f"GLIBC_{needs_glibc}\0".encode()
    dynamic = _dynamic(strings, needing=bool(needs_glibc))
    end = _DYNAMIC + len(dynamic)
    content = bytearray(end)
    for place, part in {
        0: _headers(end, len(dynamic)),
        _CODE: _code(),
        _VERSION: version.encode(),
        _MESSAGE: why.encode(),
        _STRINGS: strings,
        _HASH: struct.pack("<6I", 1, 2, 1, 0, 0, 0),
        _SYMBOLS: bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, _at("base"), _SLOT),
        _VERNEED: _verneed(strings, f"GLIBC_{needs_glibc}"),
        _RELA: _relocations({"refuse": refuses, "crash": crashes, "hang": hangs}),
        _DYNAMIC: dynamic,
    }.items():
        content[place : place + len(part)] = part
    return bytes(content)


def _at(function: str) -> int:
    return _CODE + _SLOT * _FUNCTIONS.index(function)


def _code() -> bytes:
    functions = {
        "base": _address(_at("base"), _BASE),
        "api": _address(_at("api"), _TABLE),
        "version": _address(_at("version"), _VERSION),
        "message": _address(_at("message"), _MESSAGE),
        "succeed": b"\x31\xc0\xc3",  # xor eax, eax; ret
        "refuse": b"\xb8\x01\0\0\0\xc3",  # mov eax, 1; ret
        "crash": b"\x0f\x0b",  # ud2
        "hang": b"\xeb\xfe",  # jmp to itself
    }
    return b"".join(functions[name].ljust(_SLOT, b"\xcc") for name in _FUNCTIONS)


def _address(here: int, target: int) -> bytes:
    """Return the code of ``lea rax, [rip + …]; ret``, which returns the address ``target``."""
    return b"\x48\x8d\x05" + struct.pack("<i", target - here - 7) + b"\xc3"


def _relocations(kinds: Mapping[str, Collection[int]]) -> bytes:
    """Return relocations R_X86_64_RELATIVE for the pointers of ``OrtApiBase`` and of the table."""
    table = [_kind(place, kinds) for place in range(_PLACES)]
    return b"".join(
        struct.pack("<QQq", _BASE + 8 * number, 8, _at(name))
        for number, name in enumerate(["api", "version", *table])
    )


def _kind(place: int, kinds: Mapping[str, Collection[int]]) -> str:
    if place == _GET_ERROR_MESSAGE:
        return "message"
    return next((kind for kind, places in kinds.items() if place in places), "succeed")


def _dynamic(strings: bytes, *, needing: bool) -> bytes:
    tags = [(4, _HASH), (5, _STRINGS), (6, _SYMBOLS), (10, len(strings)), (11, 24)]
    tags += [(7, _RELA), (8, 24 * (_PLACES + 2)), (9, 24)]
    if needing:
        tags = [(1, strings.index(b"libc")), (0x6FFFFFFE, _VERNEED), (0x6FFFFFFF, 1), *tags]
    return b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])


def _verneed(strings: bytes, name: str) -> bytes:
    need = struct.pack("<HHIII", 1, 1, strings.index(b"libc"), 16, 0)
    return need + struct.pack("<IHHII", elf_hash(name.encode()), 0, 2, strings.index(b"GLIBC"), 0)


def elf_hash(name: bytes) -> int:
    """Return the System V ABI's hash, which the loader compares before it compares the names of versions."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _headers(end: int, dynamic: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    stack = 0x6474E551
    return header + _segment(1, 7, 0, end) + _segment(2, 6, _DYNAMIC, dynamic) + _segment(stack, 6, 0, 0)


def _segment(kind: int, flags: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, 8)
