"""Tests of a stream that ``tarfile`` reads as a file: the members equal those of tarfile's streaming mode."""

import io
import tarfile
from typing import IO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.files.archive_reader import Forward


class Dribbling(io.RawIOBase):
    """A stream that returns at most ``most`` bytes for each read, as some decompressors do."""

    def __init__(self, content: bytes, most: int) -> None:
        self._rest, self._most = content, most

    def read(self, size: int = -1) -> bytes:
        size = min(size, self._most)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def forward(content: bytes, most: int = 1 << 20) -> Forward:
    return Forward(cast("IO[bytes]", Dribbling(content, most)))


def packed(sizes: list[int]) -> bytes:
    """Return a tar with files of these sizes; a multiple of 512 needs no padding."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number, size in enumerate(sizes):
            info = tarfile.TarInfo(f"{'long/' * 30}{number}")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes([number + 1]) * size))
    return buffer.getvalue()


@given(
    sizes=st.lists(st.sampled_from([0, 1, 511, 512, 513, 1024, 5000]), max_size=6),
    most=st.sampled_from([1, 7, 511, 512, 100_000]),
    skipped=st.sets(st.integers(0, 5)),
)
def test_every_member_comes_out_as_it_went_in(sizes: list[int], most: int, skipped: set[int]) -> None:
    stream = cast("IO[bytes]", forward(packed(sizes), most))
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for number, member in enumerate(archive):
            source = archive.extractfile(member)
            assert source is not None
            if number not in skipped:
                assert source.read() == bytes([number + 1]) * sizes[number]
        assert len(archive.getmembers()) == len(sizes)


def test_it_reads_to_the_full_and_goes_forwards_only() -> None:
    stream = forward(b"0123456789", most=3)
    assert (stream.read(4), stream.tell()) == (b"0123", 4)
    assert stream.seek(6) == 6
    assert stream.seek(5) == 5, "one back"
    assert (stream.read(3), stream.tell()) == (b"567", 8)
    with pytest.raises(tarfile.StreamError, match="backwards"):
        stream.seek(2)
    assert stream.seek(99) == 10, "the end"
    assert stream.read(1) == b""
