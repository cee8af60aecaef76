"""Tests of detecting kernels by a mark in stored images and in small images after unpacking."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from backports import zstd

from builder.binary import payloads
from builder.binary.payloads import CUBIN, FAR, PTX, CodeFinder, Compression

EMPTY = b"\x7fELF" + bytes(60) + b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0"

WITH_KERNEL = EMPTY + b".text.scale\0"

NO_KERNEL = b"//\n.version 8.8\n.target sm_50\n.address_size 64\n"


def _has_code(kind: bytes, stored: bytes, packed: Compression = Compression.NONE, size: int = 900) -> bool:
    return CodeFinder().holds_code(kind, packed, stored, 0, len(stored), size)


def _lz4(literals: bytes, again: bytes = b"") -> bytes:
    """Return an LZ4 block of ``literals`` and a final copy of ``again``, at least four bytes of them."""
    token = bytes([0xF0 | (len(again) - 4 if again else 0), *[255] * ((len(literals) - 15) // 255)])
    block = token + bytes([(len(literals) - 15) % 255]) + literals
    return block + (len(literals) - literals.index(again)).to_bytes(2, "little") if again else block


@pytest.mark.parametrize(
    ("packed", "pack"),
    [(Compression.NONE, bytes), (Compression.LZ4, _lz4), (Compression.ZSTD, zstd.compress)],
)
@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        (CUBIN, EMPTY, False),
        (CUBIN, WITH_KERNEL, True),
        (CUBIN, EMPTY + bytes(600) + b".text.late", True),
        (PTX, NO_KERNEL, False),
        (PTX, NO_KERNEL + b".visible .entry scale(", True),
        (PTX, NO_KERNEL + b".func helper(", True),
    ],
)
def test_however_it_is_packed(
    kind: bytes, data: bytes, code: bool, packed: Compression, pack: Callable[[bytes], bytes]
) -> None:
    assert _has_code(kind, pack(data), packed, len(data)) is code


def test_a_mark_that_is_a_copy_in_the_block() -> None:
    """A comment names the kernel ``entry``, so that only the point of the mark ``.entry`` is stored."""
    block = _lz4(NO_KERNEL + b"// .globl entry\n\n.visible .", b"entry")
    assert b".entry" not in block
    assert _has_code(PTX, block, Compression.LZ4)


@pytest.mark.parametrize(
    ("stored", "packed"),
    [
        (b"\xcc" * 20, Compression.NONE),
        (b"\xcc" * 20, Compression.LZ4),
        (b"\xcc" * 20, Compression.ZSTD),
        (_lz4(EMPTY)[:30], Compression.LZ4),
        (b"\x10x\0\0", Compression.LZ4),
        (b"\x10x\xff\xff", Compression.LZ4),
    ],
)
def test_what_is_no_cubin_is_never_called_empty(stored: bytes, packed: Compression) -> None:
    assert _has_code(CUBIN, stored, packed)


def test_what_is_too_large_to_be_unpacked_counts_as_code() -> None:
    assert not _has_code(CUBIN, EMPTY, size=1 << 14)
    assert _has_code(CUBIN, EMPTY, size=(1 << 14) + 1)
    assert _has_code(CUBIN, EMPTY + bytes(FAR))


def test_so_many_different_images_are_unpacked_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MOST_UNPACKED", 2)
    finder = CodeFinder()

    def found(stored: bytes) -> bool:
        return finder.holds_code(CUBIN, Compression.NONE, stored, 0, len(stored), len(stored))

    assert [found(EMPTY + bytes([n])) for n in (1, 2, 3, 1)] == [False, False, True, False]
