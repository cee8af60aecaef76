"""Tests of the native reader on code that NVRTC 12.9 compiles and nvFatbin 12.9 packs during the test.

Expectations: the input of nvFatbin, NVIDIA's description of its options, payloads unpacked by independent
decoders, and the listings of cuobjdump 12.4.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Kind
from builder.binary.payloads import Compression
from builder.contents.cuobjdump import (
    KNOWN_IMAGES,
    ImageCounts,
    count_images,
    disagreements,
    parse_listings,
)
from builder.contents.reading import read_file
from builder.facts.gpu.architectures import Arch
from tests.support import ROOT
from tests.support.factories.binaries import elf
from tests.support.factories.nvidia import (
    ARCHES,
    BIG,
    NO_KERNEL,
    PLAIN,
    SMALL,
    Code,
    compiled,
    compiled_lto,
    known,
    listing,
    packed,
    unpack_cuobjdump,
)
from tests.support.factories.payloads import unpacked

NONE, LZ4, ZSTD = Compression.NONE, Compression.LZ4, Compression.ZSTD
MODES: Mapping[str, tuple[Compression, Compression]] = {
    "-compress=false": (NONE, NONE),
    "-compress-mode=none": (NONE, NONE),
    "-compress=true -compress-mode=none": (NONE, NONE),
    "": (NONE, LZ4),
    "-compress-mode=default": (NONE, LZ4),
    "-compress-mode=balance": (NONE, ZSTD),
    "-compress-all": (LZ4, LZ4),
    "-compress-all -compress-mode=speed": (LZ4, LZ4),
    "-compress-all -compress-mode=balance": (ZSTD, ZSTD),
    "-compress-mode=size": (ZSTD, ZSTD),
}
"""Compression of SASS, and of PTX and LTO IR, by nvFatbin's options.

Measured, by unpacking payloads in the tests below: ``size`` compresses SASS too, the other modes only with
``-compress-all``.
"""


def test_the_compiler_knows_the_published_architectures() -> None:
    assert known() == PLAIN


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("arch", ARCHES)
def test_one_architecture_in_every_kind_and_packing(arch: str, mode: str) -> None:
    codes = (*compiled(SMALL, arch), compiled_lto(SMALL, arch))
    assert _told(_read(codes, mode)) == _asked(codes, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("arch", ["50", "75", "90a", "100", "120f"])
@pytest.mark.parametrize("source", [SMALL, BIG], ids=["small", "big"])
def test_payloads_are_what_was_packed(arch: str, mode: str, source: str) -> None:
    """Independent decoders unpack the bytes at the reader's sizes and offsets to NVRTC's output."""
    sass, ptx = compiled(source, arch)
    data = packed((sass, ptx), *mode.split())
    (container,) = read_containers(data)
    first, second = (unpacked(data, image) for image in container.images)
    assert (len(first), first) == (container.images[0].unpacked_size, sass.data)
    assert len(second) == container.images[1].unpacked_size
    assert _words(second) == _words(ptx.data)


@pytest.mark.parametrize(
    ("option", "flags", "kind"),
    [
        ("-64", 0x11, Kind.PTX),
        ("-g", 0x13, Kind.PTX),
        ("-cuda", 0x15, Kind.PTX),
        ("-opencl", 0x19, Kind.PTX),
        ("-host=linux", 0x11, Kind.PTX),
        ("-host=windows", 0x41, Kind.PTX),
        ("-32", 0x10, Kind.OTHER),
        ("-host=mac", 0x21, Kind.OTHER),
    ],
)
def test_what_is_neither_for_64_bit_linux_nor_windows_is_of_no_known_kind(
    option: str, flags: int, kind: Kind
) -> None:
    (_, ptx) = compiled(SMALL, "75")
    data = packed([ptx], option, "-compress=false")
    assert _flags(data) == flags
    assert [image.kind for image in read_containers(data)[0].images] == [kind]


@pytest.mark.parametrize("arch", ARCHES)
def test_the_blackwell_flag_says_that_capsule_mercury_is_in_the_cubin(arch: str) -> None:
    (sass, _) = compiled(SMALL, arch)
    assert bool(_flags(packed([sass])) & 0x1000000) == (b".nv.capmerc" in sass.data)


def test_the_suffix_is_what_the_packer_was_told() -> None:
    """nvFatbin compares a cubin's number with the given one, not its suffix; the reader cannot either."""
    (sass, _) = compiled(SMALL, "90a")
    (container,) = read_containers(packed([Code(Kind.SASS, "90", sass.data)]))
    assert container.images[0].arch == Arch(9, 0)


@pytest.mark.parametrize("mode", ["-compress=false", "-compress-all", "-compress-mode=size"])
@pytest.mark.parametrize("arch", ARCHES)
def test_a_unit_without_kernels_has_nothing_to_run(arch: str, mode: str) -> None:
    (sass, _) = compiled(NO_KERNEL, arch)
    found = [_read(codes, mode).images[0] for codes in ([sass], [compiled(SMALL, arch)[0]])]
    assert [image.runnable for image in found] == [False, True]


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], ImageCounts]:
    """Return a function that counts a fatbin's images by cuobjdump 12.4."""
    folder = tmp_path_factory.mktemp("cuobjdump")
    program = unpack_cuobjdump(folder)

    def count(data: bytes) -> ImageCounts:
        file = folder / "demo.fatbin"
        file.write_bytes(data)
        elf_list, ptx_list = (listing(program, f"--list-{kind}", file) for kind in ("elf", "ptx"))
        return parse_listings(elf_list, ptx_list)

    return count


@pytest.mark.parametrize("mode", MODES)
def test_cuobjdump_lists_the_same_images_but_for_the_family_suffix(
    mode: str, cuobjdump: Callable[[bytes], ImageCounts]
) -> None:
    """cuobjdump 12.4 is older than Blackwell: it lists the suffix ``f`` as none, for SASS and PTX."""
    data = packed([code for arch in ARCHES for code in compiled(SMALL, arch)], *mode.split())
    listed = cuobjdump(data)
    expected = [Arch.parse(arch.removesuffix("f")) for arch in ARCHES]
    assert listed == ImageCounts(sass=Counter(expected), ptx=Counter(expected))
    assert disagreements(count_images(read_containers(elf({".nv_fatbin": data}))), listed) == []


_Told = tuple[Kind, str, Compression, int | None]


def _read(codes: Sequence[Code], mode: str) -> Container:
    (container,) = read_containers(packed(codes, *mode.split()))
    return container


def _told(container: Container) -> list[_Told]:
    return [
        (
            image.kind,
            str(image.arch),
            image.compression,
            None if image.kind is Kind.PTX else image.unpacked_size,
        )
        for image in container.images
    ]


def _asked(codes: Sequence[Code], mode: str) -> list[_Told]:
    """Return the expected images, PTX without a size, as nvFatbin removes its comments and indentation."""
    sass, others = MODES[mode]
    asked: list[_Told] = []
    for code in codes:
        packing = sass if code.kind is Kind.SASS else others
        size = len(code.data) + (-len(code.data) % 8 if packing is NONE else 0)
        asked.append((code.kind, code.arch, packing, None if code.kind is Kind.PTX else size))
    return asked


def _flags(data: bytes) -> int:
    """Return the number at offset 40 of the first image's header."""
    return int(struct.unpack_from("<Q", data, 16 + 40)[0])


def _words(ptx: bytes) -> list[bytes]:
    """Return the words of PTX, without comments and white space."""
    return re.sub(rb"//[^\n]*", b"", ptx.rstrip(b"\0")).split()


def test_the_known_file_holds_what_cuobjdump_and_the_native_reader_count(
    cuobjdump: Callable[[bytes], ImageCounts],
) -> None:
    """A build tries cuobjdump on this file before it compiles anything."""
    known_file = ROOT / "builder/binary/known-images.so"
    assert cuobjdump(known_file.read_bytes()) == KNOWN_IMAGES
    assert count_images(read_file(known_file.name, known_file).containers) == KNOWN_IMAGES
    sass = [compiled(SMALL, arch)[0] for arch in ["50", "60", "70", "75", "80", "90", "90a", "100", "120"]]
    made = packed([*sass, *(compiled(SMALL, arch)[1] for arch in ("52", "90"))])
    assert made in known_file.read_bytes(), "NVRTC 12.9 and nvFatbin make it again"
