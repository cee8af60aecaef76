"""Tests of the reader of fatbin containers: a wrong one is refused with the offset of its fault.

Hostile and unusual files are refused like that too, or read correctly.
"""

import mmap
import struct
import time
from collections.abc import Iterable
from functools import partial

import pytest

from builder.binary import fatbin, fatbin_format
from builder.binary.elf import read_elf
from builder.binary.elf_headers import ElfError, read_sections
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, FatbinError, Kind
from builder.facts.gpu.architectures import Arch
from tests.support.factories.binaries import (
    BLACKWELL,
    LTOIR,
    LZ4,
    PTX,
    SASS,
    ZSTD,
    A,
    F,
    assert_refused,
    container,
    elf,
    empty_cubin,
    header_of,
    image,
    image_of,
    joined,
    patched,
    sass,
)
from tests.support.messages import Refused, Told


def _read(data: bytes, section: str = ".nv_fatbin") -> tuple[Container, ...]:
    return read_containers(elf({".rodata": b"\xff" * 24, section: data}))


def _images(found: Container) -> str:
    return ", ".join(f"{one.kind.name} {one.arch} {one.compression.name}" for one in found.images)


def _places(containers: Iterable[Container]) -> str:
    return ", ".join(f"{one.section or 'no section'} {one.images[0].arch}" for one in containers)


def test_a_container_image_by_image() -> None:
    (found,) = _read(
        container(
            image(SASS, 60, payload=32),
            image(SASS, 90, A | LZ4, payload=40, packed=33),
            image(SASS, 120, F | BLACKWELL | ZSTD, header=96),
            image(PTX, 90, LZ4, header=80),
            image(LTOIR, 50, 0x10000 | LZ4),
            image(0x40, 75),
        )
    )
    kinds = "SASS 60 NONE, SASS 90a LZ4, SASS 120f ZSTD, PTX 90 LZ4, LTOIR 50 LZ4, OTHER 75 NONE"
    assert _images(found) == kinds
    assert [(one.size, one.unpacked_size) for one in found.images[:2]] == [(32, 32), (33, 4096)]
    assert found.arches(Kind.SASS) == {Arch(6, 0), Arch(9, 0, "a"), Arch(12, 0, "f")}


def test_a_packed_image_may_fill_its_payload_or_next_to_none_of_it() -> None:
    (found,) = _read(container(*(image(SASS, 50, LZ4, payload=24, packed=packed) for packed in (1, 24))))
    assert [one.size for one in found.images] == [1, 24]


def test_the_whole_file_is_read_and_each_section_named() -> None:
    """cuFFT has other data, then containers, then other data again."""
    among = b"other data".ljust(72) + sass(90) + b"x" * 40
    library = elf({".nv_fatbin": sass(80), "__nv_relfatbin": sass(86), ".ldata": among + sass(100)})
    found = read_containers(library + b"\0" * (-len(library) % 8) + sass(120))
    assert _places(found) == ".nv_fatbin 80, __nv_relfatbin 86, .ldata 90, .ldata 100, no section 120"


BEGIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)


def test_what_has_nothing_to_run() -> None:
    (found,) = _read(container(empty_cubin(52), empty_cubin(90), image(LTOIR, 50), image(SASS, 52)))
    assert [one.runnable for one in found.images] == [False, False, False, True]


def test_the_version_of_ptx_stands_in_the_image_s_header() -> None:
    (found,) = _read(container(image(PTX, 90, LZ4, isa=(8, 8)), image(PTX, 90, isa=(9, 0))))
    assert [one.isa for one in found.images] == [(8, 8), (9, 0)]


GOOD = sass(50, 60)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (bytes(64), "holds no container", 0),
        (b"\x00" * 8 + b"junk" * 8, "no container where one must begin", 8),
        (GOOD + b"junk" * 8, "no container where one must begin", len(GOOD)),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0) + bytes(64), "holds empty containers alone", 0),
        (struct.pack("<IHHQ", 0xBA55ED50, 2, 16, 64) + bytes(64), "unknown container version 2", 0),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 64) + bytes(64), "header of 0 bytes", 0),
        (container(image(SASS, 50, payload=0)), "holds empty containers alone", 0),
        (container(image(SASS, 50, LZ4, payload=24, packed=0)), "compressed image of 0 bytes", 16),
        (container(image(SASS, 50, LZ4 | ZSTD)), "packed in two ways", 16),
        (container(image(SASS, 5)), "image for architecture 5", 16),
        (container(image(SASS, 2**32 - 1)), "image for architecture 4294967295", 16),
        (container(struct.pack("<HHI", 2, 0x0202, 64) + bytes(80)), "unknown image version 0x0202", 16),
    ],
)
def test_whatever_is_no_whole_container_says_where(data: bytes, message: str, offset: int) -> None:
    library = elf({".rodata": b"just before it..", ".nv_fatbin": data})
    with pytest.raises(FatbinError, match=message) as caught:
        read_containers(library)
    assert caught.value.offset == library.index(b"just before it..") + 16 + offset


WINDOWS = 64 * (2**16 - 1)
"""Total bytes of the search windows below 4 MiB: the first has 64 bytes, each next one twice as many."""


@pytest.mark.parametrize("odd", range(8))
@pytest.mark.parametrize("size", [64 * (2**8 - 1), WINDOWS, WINDOWS + (4 << 20)])
def test_a_container_that_begins_where_one_search_ends(odd: int, size: int) -> None:
    """Bytes after all sections are searched window by window."""
    library = elf()
    names = next(section for section in read_sections(library) if section.name == ".shstrtab")
    place = names.offset + names.size + size - odd
    (found,) = read_containers(library.ljust(place, b"\0") + sass(50))
    assert found.offset == place


class _Mapped(mmap.mmap):
    """A mapped file that records which bytes were released from memory."""

    def __init__(self, *_args: int) -> None:
        self.released: list[range] = []

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        assert (option, start % mmap.PAGESIZE) == (mmap.MADV_DONTNEED, 0)
        assert length > 0
        self.released.append(range(start, start + length))


def _mapped(size: int, contents: dict[int, bytes]) -> _Mapped:
    mapped = _Mapped(-1, size)
    for place, data in contents.items():
        mapped[place : place + len(data)] = data
    return mapped


def test_pages_behind_the_reader_are_given_back_32_mib_at_a_time() -> None:
    second, third, fourth, end = (40 << 20) + 104, 50 << 20, (72 << 20) + 104, (72 << 20) + 208
    mapped = _mapped(end, dict.fromkeys((0, second, third, fourth), sass(50)))
    assert [one.offset for one in read_containers(mapped)] == [0, second, third, fourth]
    assert {range(second), range(40 << 20, fourth), range(72 << 20, end)} <= set(mapped.released)


def test_no_page_is_given_back_behind_the_end_of_the_file() -> None:
    library = elf({".data": bytes(8)}).ljust(2 * mmap.PAGESIZE, b"\0")
    place = header_of(library, ".data") + 24
    mapped = _mapped(len(library), {0: patched(library, place, "<QQ", mmap.PAGESIZE, mmap.PAGESIZE)})
    assert read_containers(mapped) == ()
    assert mapped.released[-1] == range(mmap.PAGESIZE, 2 * mmap.PAGESIZE)


def test_pages_are_kept_where_the_system_takes_them_back_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, mmap has no ``madvise``."""
    mapped = _mapped(70 << 20, {0: sass(50)})
    monkeypatch.delattr(mmap, "MADV_DONTNEED")
    assert len(read_containers(mapped)) == 1
    assert mapped.released == []


def test_a_fatbin_larger_than_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "LARGEST", len(GOOD))
    assert len(read_containers(GOOD)) == 1
    message = f"a file of {len(GOOD) + 8} bytes: no library is larger than 4 GiB"
    assert_refused(read_containers, FatbinError, GOOD + bytes(8), message, len(GOOD))


def test_a_section_within_another_one_is_read_with_it() -> None:
    library = elf({".data": sass(50) + sass(60), ".ldata": bytes(8), ".rodata": sass(70)})
    within = library.index(BEGIN) + 8
    found = read_containers(patched(library, header_of(library, ".ldata") + 24, "<QQ", within, 16))
    assert _places(found) == ".data 50, .data 60, .rodata 70"


def test_a_long_run_of_padding_is_not_walked_byte_by_byte() -> None:
    padded = sass(50) + bytes(32 << 20) + sass(60)
    start = time.process_time()
    assert len(read_containers(padded)) == 2
    assert time.process_time() - start < 0.3


def test_a_fatbin_section_that_is_said_to_be_machine_code() -> None:
    library = elf({".text": sass(60), ".nv_fatbin": sass(50)})
    where = library.rindex(BEGIN)
    flags = header_of(library, ".nv_fatbin") + 8
    found = read_containers(patched(library, flags, "<Q", 0x6))  # SHF_ALLOC and SHF_EXECINSTR
    assert [(one.section, one.offset) for one in found] == [(".nv_fatbin", where)]


@pytest.mark.parametrize("flags", [0x10, 0x01, 0x21, 0x40])
@pytest.mark.parametrize("kind", [SASS, PTX, LTOIR])
def test_what_is_not_for_a_64_bit_host_is_of_no_known_kind(kind: int, flags: int) -> None:
    """Flags are nvFatbin's for ``-32``, no system, ``-host=mac``, ``-32`` on Windows; real images
    have 0x11 or 0x41."""
    (found,) = _read(container(image(SASS, 75), patched(image(kind, 75), 40, "<Q", flags)))
    assert [one.kind for one in found.images] == [Kind.SASS, Kind.OTHER]
    assert found.images[1].runnable, "what it holds is not known"


def test_more_images_than_any_library_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real limit takes seconds to reach: cuFFT has 24,454 images."""
    monkeypatch.setattr(fatbin, "MOST_IMAGES", 3)
    monkeypatch.setattr(fatbin_format, "MOST_IMAGES", 3)
    each = len(image(SASS, 50))
    assert len(read_containers(sass(50) + sass(50, 60))) == 2
    with pytest.raises(FatbinError, match="more than 3 images in a file") as caught:
        read_containers(sass(50) + sass(50, 60, 70))
    assert caught.value.offset == 16 + each + 16 + 2 * each
    with pytest.raises(FatbinError, match="more than 3 images in a container") as caught:
        read_containers(sass(50, 60, 70, 80, 90))
    assert caught.value.offset == 16 + 3 * each


@pytest.mark.parametrize("stray", [b"\xff" * 4 + BEGIN + b"\xff" * 4, BEGIN + bytes(8)], ids=["odd", "empty"])
def test_more_beginnings_of_nothing_than_there_are(stray: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts beginnings in two sections together."""
    monkeypatch.setattr(fatbin, "MOST_STRAYS", 2000)
    half = stray * 1000
    assert read_containers(elf({".rodata": half, ".data": half})) == ()
    library = elf({".rodata": half, ".data": half + stray})
    message = "more than 2,000 beginnings of containers that are none"
    assert_refused(read_containers, FatbinError, library, message, library.rindex(BEGIN))


CUBIN = b"\x7fELF" + bytes(60) + b"\0.shstrtab\0.text.scale\0"


def test_images_that_are_packed_as_one() -> None:
    """CUDA 13.4 and newer pack all cubins of a unit together, and all PTX."""
    (found,) = _read(
        container(
            joined(image_of(PTX, 80, b".version 9.0 .entry a"), image_of(PTX, 90, b".version 9.0"), each=80),
            joined(image_of(SASS, 80, CUBIN), image_of(SASS, 90, CUBIN, A), empty_cubin(103)),
            image(SASS, 120),
        )
    )
    kinds = "PTX 80 ZSTD, PTX 90 ZSTD, SASS 80 ZSTD, SASS 90a ZSTD, SASS 103 ZSTD, SASS 120 NONE"
    assert _images(found) == kinds
    assert [one.runnable for one in found.images] == [True, False, True, True, False, True]
    assert found.images[2].unpacked_size == len(CUBIN)


@pytest.mark.parametrize(
    ("place", "form", "value", "message"),
    [
        (64, "<I", 0, "joined images with a header of 136 bytes for 0"),
        (68, "<I", 80, "joined images with a header of 136 bytes for 1"),
        (4, "<I", 64, "joined images with a header of 64 bytes for 0"),
        (74, "<H", 7, "unknown image version 0x0007 in a table"),
        (72 + 28, "<I", 9999, "an image for architecture 9999"),
    ],
)
def test_a_table_of_joined_images_that_lies(place: int, form: str, value: int, message: str) -> None:
    bad = patched(joined(image_of(SASS, 80, CUBIN)), place, form, value)
    with pytest.raises(FatbinError, match=message):
        _read(container(bad))


def test_what_is_packed_as_one_and_cannot_be_unpacked_counts_as_code() -> None:
    whole = joined(image_of(SASS, 80, CUBIN), empty_cubin(90))
    (found,) = _read(container(whole[:-8] + b"\xff" * 8))
    assert [one.runnable for one in found.images] == [True, True]


LIBRARY = elf({".text": b"\x90" * 32, ".nv_fatbin": sass(50, 60)}, needed=("libc.so.6",))


_refused = partial(assert_refused, read_containers, FatbinError)


def _table(data: bytes) -> int:
    return int(struct.unpack_from("<Q", data, 40)[0])


NO_ELF_FILES = {
    "zero-length": (b"", 0),
    "text": (b"#!/bin/sh\nexec true\n", 0),
    "four bytes": (b"\x7fELF", 4),
    "cut in its header": (LIBRARY[:63], 63),
    "a header alone": (LIBRARY[:64], _table(LIBRARY)),
    "cut in half": (LIBRARY[:400], _table(LIBRARY)),
    "last byte missing": (LIBRARY[:-1], _table(LIBRARY)),
    "32-bit": (patched(LIBRARY, 4, "<B", 1), 4),
    "big-endian": (patched(LIBRARY, 5, "<B", 2), 5),
    "too many section headers": (patched(LIBRARY, 60, "<H", 0xFFFF), _table(LIBRARY)),
    "no section headers": (patched(LIBRARY, 60, "<H", 0), 58),
    "a table of headers that wraps round": (patched(LIBRARY, 40, "<Q", 2**64 - 64), 2**64 - 64),
}
"""By fault: data, and the fault's offset."""


@pytest.mark.parametrize("machine", [21, 243, 4137])
def test_a_library_for_any_processor_is_read(machine: int) -> None:
    """POWER, which CUDA supported, RISC-V, and MindSpore's objects for Ascend."""
    data = patched(LIBRARY, 18, "<H", machine)
    assert read_elf(data).machine == f"machine {machine}"
    assert read_containers(data) == read_containers(LIBRARY)


@pytest.mark.parametrize("name", NO_ELF_FILES)
def test_no_whole_elf_file(name: str, refused: Refused) -> None:
    data, offset = NO_ELF_FILES[name]
    for read in (read_containers, read_elf):
        with refused(ElfError) as caught:
            read(data)
        assert caught.value.offset == offset


ONE, TWO = sass(50), sass(60)

LONG_WAY = 2**64 - 64 - 24
"""Payload size for which, in 64 bits, the next image would be the same image again."""

NO_CONTAINERS = {
    "one byte short": (ONE[:-1], 0),
    "a header alone": (ONE[:16], 0),
    "cut in its header": (ONE + TWO[:12], 104),
    "a size that runs past the end": (patched(ONE, 8, "<Q", 1 << 40), 0),
    "a size that leads back": (patched(ONE, 8, "<Q", 2**64 - 16), 0),
    "a container over the next one": (patched(ONE, 8, "<Q", 88 + len(TWO)) + TWO, 104),
    "a container that ends within its image": (patched(ONE, 8, "<Q", 80) + TWO, 16),
    "a container within an image": (container(image(SASS, 50, payload=24), image(SASS, 60)[:63]), 104),
    "an image that is its own successor": (patched(ONE, 16 + 8, "<Q", LONG_WAY), 16),
    "an image without a header": (patched(ONE, 16 + 4, "<I", 0), 16),
    "an image over the next one": (
        container(patched(image(SASS, 50), 8, "<Q", 24 + 8), image(SASS, 60)),
        16 + 64 + 32,
    ),
    "a packed image longer than its payload": (container(image(PTX, 90, LZ4, payload=24, packed=25)), 16),
}
"""By fault: data, and the fault's offset in the data."""


def _fault(data: bytes) -> FatbinError:
    with pytest.raises(FatbinError) as caught:
        read_containers(data)
    return caught.value


@pytest.mark.parametrize("name", NO_CONTAINERS)
def test_no_whole_container_in_a_bare_fatbin_and_in_any_section(name: str, told: Told) -> None:
    data, offset = NO_CONTAINERS[name]
    bare = _fault(data)
    assert bare.offset == offset
    told(bare)
    for section in (".nv_fatbin", "__nv_relfatbin", ".ldata", ".rodata"):
        library = elf({".data": b"just before it..", section: data})
        inside = _fault(library)
        assert inside.offset == library.index(BEGIN) + offset
        said = str(bare).replace("the file", f"section {section}")
        assert str(inside) == said.replace(f"{offset:#x}", f"{inside.offset:#x}")


EMPTY = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)


@pytest.mark.parametrize(
    "between",
    [
        EMPTY,
        container(image(SASS, 50, payload=0)),
        container(struct.pack("<HHI", 7, 0x0101, 64) + bytes(56)),
        bytes(64),
    ],
    ids=["an empty container", "an image without bytes", "an unknown kind without bytes", "padding"],
)
@pytest.mark.parametrize("section", [".nv_fatbin", ".ldata"])
def test_what_a_driver_skips_stops_no_reader(section: str, between: bytes) -> None:
    """torch 1.0.0 of PyPI has an empty container among 1,031."""
    one = container(image(SASS, 50))
    found = read_containers(elf({section: one + between + one}))
    assert [len(each.images) for each in found] == [1, 1]
    behind = image(SASS, 50) + bytes(64)
    assert len(read_containers(elf({section: container(behind)}))[0].images) == 1


def test_an_architecture_without_suffixes_has_none() -> None:
    """torch 1.13.1's libtorch_cpu has an image for 6.0 with the flag that newer ones have for a suffix."""
    (found,) = _read(container(image(SASS, 60, A), image(SASS, 90, A)))
    assert [str(one.arch) for one in found.images] == ["60", "90a"]


@pytest.mark.parametrize(
    "data",
    [
        BEGIN[:4] + bytes(60),
        BEGIN[:4] + bytes.fromhex("02001000") + b"\xff" * 56,
        BEGIN[:4] + bytes.fromhex("01001800") + b"\xff" * 56,
        b"\xff" + BEGIN + b"\xff" * 55,
        b"\xff" * 4 + BEGIN + b"\xff" * 52,
        BEGIN + bytes(8) + b"\xff" * 48,
    ],
    ids=["magic", "version 2", "another header", "at an odd byte", "at a multiple of four", "empty"],
)
def test_a_magic_that_is_no_container_s(data: bytes) -> None:
    assert read_containers(elf({".rodata": data, ".data": data})) == ()


def test_a_fatbin_section_that_two_headers_name_is_not_counted_twice() -> None:
    library = elf({".nv_fatbin": sass(50), "__nv_relfatbin": sass(60)})
    where = library.index(BEGIN)
    place = header_of(library, "__nv_relfatbin") + 24
    changed = patched(library, place, "<QQ", where, len(sass(50)))
    _refused(changed, "section __nv_relfatbin overlaps the one before it", where)
