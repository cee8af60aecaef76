"""Tests of nearly empty sparse files of 10 GiB: each is refused at once instead of being read to its end."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import ElfError, MappedFile
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import FatbinError
from tests.support.factories.binaries import elf, sass

SIZE, LARGEST = 10 << 30, 4 << 30

TOO_LARGE = f"a file of 10,737,418,240 bytes: no library is larger than 4 GiB (at offset {LARGEST:#x})"


def _claims_all() -> bytes:
    """Return a library whose ``.nv_fatbin`` section extends to the end of the file."""
    library = bytearray(elf({".nv_fatbin": sass(50)}))
    (table,) = struct.unpack_from("<Q", library, 40)
    headers = range(table, len(library), 64)
    header = next(at for at in headers if library[at + 4 : at + 8] == b"\1\0\0\0")
    (start,) = struct.unpack_from("<Q", library, header + 24)
    struct.pack_into("<Q", library, header + 32, SIZE - start)
    return bytes(library)


FILES = {
    "a library in front": elf({".nv_fatbin": sass(50)}),
    "a fatbin section that claims all of it": _claims_all(),
    "an ELF header alone": elf()[:64],
}


@pytest.mark.parametrize("name", FILES)
def test_a_library_that_is_too_large(name: str, on_disk: Path) -> None:
    for read in (read_containers, read_elf):
        with _sparse(on_disk, FILES[name]) as buffer, pytest.raises(ElfError) as caught:
            read(buffer)
        assert (str(caught.value), caught.value.offset) == (TOO_LARGE, LARGEST)


def test_a_bare_fatbin_that_is_too_large(on_disk: Path) -> None:
    with _sparse(on_disk, sass(50)) as buffer, pytest.raises(FatbinError) as caught:
        read_containers(buffer)
    assert (str(caught.value), caught.value.offset) == (TOO_LARGE, LARGEST)


def test_nothing_but_zeros(on_disk: Path) -> None:
    with (
        _sparse(on_disk, b"") as buffer,
        pytest.raises(ElfError, match=r"not an ELF file \(at offset 0x0\)"),
    ):
        read_containers(buffer)


def test_where_the_system_does_not_tell_holes_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lseek(number: int, start: int, how: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    file = tmp_path / "demo.fatbin"
    file.write_bytes(sass(50))
    monkeypatch.setattr(os, "lseek", lseek)
    with file.open("rb") as handle, MappedFile(handle) as buffer:
        assert not buffer.is_hole(0, len(buffer))


@contextmanager
def _sparse(folder: Path, begin: bytes) -> Iterator[mmap.mmap]:
    """Map a file that begins with ``begin``; the caller's work on the mapping must take less than
    a second."""
    file = folder / "libdemo.so"
    file.write_bytes(begin)
    os.truncate(file, SIZE)
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        started = perf_counter()
        yield buffer
        assert perf_counter() - started < 1
