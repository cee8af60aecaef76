"""Tests of unpacking images by the packages lz4 and backports.zstd, and without lz4 by our own reader."""

from __future__ import annotations

import sys
from collections.abc import Callable

import lz4.block
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from builder.binary.payloads import (
    LARGEST_IMAGE,
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
