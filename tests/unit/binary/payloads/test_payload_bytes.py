"""Tests of unpacking images by lz4, backports.zstd and our own reader, and of kernels' marks in them."""

import sys
from collections.abc import Callable

import lz4.block
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from builder.binary import payloads
from builder.binary.payloads import (
    CUBIN,
    FAR,
    LARGEST_IMAGE,
    PTX,
    CodeFinder,
    Compression,
    NoDecoderError,
    PayloadError,
    lz4_block,
    unpack,
)

NONE, LZ4, ZSTD = Compression.NONE, Compression.LZ4, Compression.ZSTD


def _lz4(data: bytes) -> bytes:
    return bytes(lz4.block.compress(data, store_size=False))


@pytest.fixture(params=["lz4", "ours"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "ours":
        monkeypatch.setitem(sys.modules, "lz4.block", None)


@given(st.lists(st.sampled_from([b"a", b"ab" * 40, bytes(300), b"\x7fELF", bytes(range(256))]), max_size=60))
def test_our_reading_gives_what_lz4_packed(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert lz4_block(_lz4(data), len(data) + 1) == data


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(("packed", "pack"), [(NONE, bytes), (LZ4, _lz4), (ZSTD, zstd.compress)])
def test_all_of_it_is_given(packed: Compression, pack: Callable[[bytes], bytes]) -> None:
    data = b"".join(number.to_bytes(4, "little") for number in range(5000)) + bytes(70_000)
    assert unpack(pack(data), packed, len(data)) == data


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(("packed", "pack"), [(LZ4, _lz4), (ZSTD, zstd.compress)])
@pytest.mark.parametrize("spoil", ["cut", "longer", "shorter", "noise"])
def test_what_is_spoilt_is_refused(packed: Compression, pack: Callable[[bytes], bytes], spoil: str) -> None:
    data = bytes(range(256)) * 40 + b"the end"
    stored = pack(data)
    size = len(data) + {"longer": 1, "shorter": -1}.get(spoil, 0)
    stored = stored[:-3] if spoil == "cut" else b"\x1f\xff\xff" * 40 if spoil == "noise" else stored
    with pytest.raises(PayloadError):
        unpack(stored, packed, size)


@pytest.mark.parametrize(("packed", "size"), [(LZ4, 255 * 20 + 1), (LZ4, 1 << 40), (ZSTD, LARGEST_IMAGE + 1)])
def test_a_claim_that_no_block_can_keep_is_refused_unread(packed: Compression, size: int) -> None:
    with pytest.raises(PayloadError, match=f"20 packed bytes claim to be {size:,}"):
        unpack(bytes(20), packed, size)


def test_without_zstd_a_frame_stays_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = zstd.compress(b"code")
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(NoDecoderError, match="reads no zstd"):
        unpack(stored, ZSTD, 4)


EMPTY = b"\x7fELF" + bytes(60) + b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0"

WITH_KERNEL = EMPTY + b".text.scale\0"

NO_KERNEL = b"//\n.version 8.8\n.target sm_50\n.address_size 64\n"


def _has_code(kind: bytes, stored: bytes, packed: Compression = Compression.NONE, size: int = 900) -> bool:
    return CodeFinder().holds_code(kind, packed, stored, 0, len(stored), size)


def _lz4_block(literals: bytes, again: bytes = b"") -> bytes:
    """Return an LZ4 block of ``literals`` and a final copy of ``again``, at least four bytes of them."""
    token = bytes([0xF0 | (len(again) - 4 if again else 0), *[255] * ((len(literals) - 15) // 255)])
    block = token + bytes([(len(literals) - 15) % 255]) + literals
    return block + (len(literals) - literals.index(again)).to_bytes(2, "little") if again else block


@pytest.mark.parametrize(
    ("packed", "pack"),
    [(Compression.NONE, bytes), (Compression.LZ4, _lz4_block), (Compression.ZSTD, zstd.compress)],
)
@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        (CUBIN, EMPTY, False),
        (CUBIN, WITH_KERNEL, True),
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
    block = _lz4_block(NO_KERNEL + b"// .globl entry\n\n.visible .", b"entry")
    assert b".entry" not in block
    assert _has_code(PTX, block, Compression.LZ4)


@pytest.mark.parametrize(
    ("stored", "packed"),
    [
        (b"\xcc" * 20, Compression.LZ4),
        (b"\xcc" * 20, Compression.ZSTD),
        (_lz4_block(EMPTY)[:30], Compression.LZ4),
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
