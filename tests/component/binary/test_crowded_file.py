"""Tests of files that claim far more than their size, and of nearly empty ones of 3 GB, which are read soon.

A process of its own reads a crowded file and is measured; ``ru_maxrss`` would include the parent's memory.
"""

import errno
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.binary.elf_headers import MappedFile
from builder.binary.fatbin_format import BEGIN
from builder.contents.reading import read_file
from tests.support import ROOT, ran
from tests.support.factories.binaries import SASS, container, elf, header_of, image, patched, sass
from tests.support.messages import Told

pytestmark = pytest.mark.thorough

SECONDS, MIB = 8, 200
"""Limits of processor time (s) and memory (MiB) for one file, with the interpreter's 17 MiB and
the file itself."""

READ = r"""
import re, sys, time
from pathlib import Path
from builder.contents.reading import read_file

begin = time.process_time()
reading = read_file(sys.argv[2], Path(sys.argv[1]))
seconds = time.process_time() - begin
(peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
print(f"{seconds:.2f} {int(peak) // 1024}")
print(reading.problem.message if reading.problem else f"{len(reading.containers):,} containers")
"""

NAME = "n" * 4000

HEADERS = 65_000

SMALL = image(SASS, 50, payload=8)


def _headers_again(library: bytes, name: str, count: int) -> bytes:
    """Return the library with ``count`` more headers equal to the header of section ``name``."""
    at, total = header_of(library, name), struct.unpack_from("<H", library, 60)[0] + count
    return patched(library, 60, "<H", total) + library[at : at + 64] * count


def _a_name_needed_again_and_again() -> bytes:
    library, entry = elf(needed=[NAME, *["x"] * HEADERS]), struct.pack("<qQ", 1, 1)
    at, size = library.index(entry), len(entry) * (HEADERS + 1)
    return library[:at] + entry * (HEADERS + 1) + library[at + size :]


def _a_symbol_again_and_again() -> bytes:
    """Return a library with a million symbols of one name that is slow to compare."""
    name = "cudnn_" + "_version" * 500 + "x"
    library = elf({".rodata": bytes(8)}, symbols={name: (".rodata", 4)})
    header = header_of(library, ".dynsym")
    (start,) = struct.unpack_from("<Q", library, header + 24)
    symbols = library[start + 24 : start + 48] * (1 << 20)
    grown = bytearray(library + bytes(-len(library) % 8) + symbols)
    struct.pack_into("<QQ", grown, header + 24, len(grown) - len(symbols), len(symbols))
    return bytes(grown)


CROWDED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "15,000 headers over one .rodata": (
        "libonnxruntime_x.so",
        lambda: _headers_again(elf({".rodata": bytes(4 << 20)}), ".rodata", 15_000),
    ),
    "65,000 headers over one section": (
        "libcudnn_ops.so.9",
        lambda: _headers_again(elf({".ldata": container(SMALL) * 10_000}), ".ldata", HEADERS),
    ),
    "65,000 sections with one long name": (
        "libdemo.so",
        lambda: _headers_again(elf({f".{NAME}": b"x"}), f".{NAME}", HEADERS),
    ),
    "65,000 times one long name needed": ("libdemo.so", _a_name_needed_again_and_again),
    "1,000,000 symbols with one long name": ("libcudnn_ops.so.9", _a_symbol_again_and_again),
    "a container of 1,400,000 images": ("demo.fatbin", lambda: container(SMALL * 1_400_000)),
    "300,000 containers": ("demo.fatbin", lambda: container(SMALL) * 300_000),
    "a small gap behind each of 100,000 containers": (
        "demo.fatbin",
        lambda: (container(SMALL) + bytes(24)) * 100_000,
    ),
    "4,000,000 beginnings at odd places": (
        "libdemo.so",
        lambda: elf({".rodata": b"\xff" + BEGIN * 4_000_000}),
    ),
    "2,000,000 empty containers": ("libdemo.so", lambda: elf({".rodata": (BEGIN + bytes(8)) * 2_000_000})),
}
"""By content: the file's name, and the function that makes the file."""


def _read(file: Path, name: str, told: Told, seconds: float) -> None:
    """Read the file in a process of its own, whose message goes to the catalogue, within the limits."""
    argv = [sys.executable, "-c", READ, str(file), name]
    done = ran(argv, cwd=ROOT, check=True, timeout=900)
    took, message = done.stdout.splitlines()
    told(message)
    needed, mebibytes = map(float, took.split())
    assert (needed < seconds, mebibytes < MIB) == (True, True), took


ENDLESS = {"demo.fatbin": sass(50), "libdemo.so": elf({".nv_fatbin": sass(50)})}


@pytest.mark.parametrize("name", ENDLESS)
def test_three_gigabytes_of_zeros_take_no_memory(name: str, on_disk: Path, told: Told) -> None:
    """The whole file of 3 GB is searched, but no part of its hole is read from the disk."""
    file = on_disk / name
    file.write_bytes(ENDLESS[name])
    os.truncate(file, 3 << 30)
    _read(file, name, told, 1)


def test_containers_behind_holes_are_found(on_disk: Path) -> None:
    """The file system reports the ends of a hole in blocks: containers are at both ends of a hole
    and inside it."""
    file = on_disk / "demo.fatbin"
    places = [0, 96 << 20, (200 << 20) + 4096 * 3 + 8, (1 << 30) - len(sass(50))]
    with file.open("wb") as opened:
        for place in places:
            opened.seek(place)
            opened.write(sass(50))
    assert file.stat().st_blocks * 512 < 1 << 20, "sparse"
    assert [container.offset for container in read_file(file.name, file).containers] == places


@pytest.mark.parametrize("name", CROWDED)
def test_a_file_that_asks_for_more_than_its_size(name: str, tmp_path: Path, told: Told) -> None:
    called, make = CROWDED[name]
    (tmp_path / called).write_bytes(make())
    _read(tmp_path / called, f"lib/{called}", told, SECONDS)


def test_without_a_word_of_holes_all_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lseek(number: int, start: int, how: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    file = tmp_path / "demo.fatbin"
    file.write_bytes(sass(50))
    monkeypatch.setattr(os, "lseek", lseek)
    with file.open("rb") as handle, MappedFile(handle) as buffer:
        assert not buffer.is_hole(0, len(buffer))
