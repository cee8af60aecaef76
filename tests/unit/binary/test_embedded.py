"""Marks as ``readelf``, ``strings`` and a hex dump show them in the real libraries."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import ElfError, read_sections
from builder.binary.embedded import embedded_version
from builder.binary.library import highest, wheel_version
from tests.support.factories.binaries import elf

PROVIDER, GRAPH = "libonnxruntime_providers_cuda.so", "libcudnn_graph.so.9"

RELEASE = struct.pack("<II", 7, 0x090A02)


def _stamp(name: str, library: bytes) -> str | None:
    return embedded_version(library, name, read_elf(library))


def _cudnn(numbers: bytes, *places: int, names: tuple[str, ...] = ("cudnn_graph_version",)) -> bytes:
    symbols = {name: (".rodata", place) for name, place in zip(names, places, strict=True)}
    return elf({".rodata": numbers}, symbols=symbols)


def test_ort_s_host_library_defines_its_version() -> None:
    host = elf({".rodata": b"\x001.3.2\x001.31.1\x00"}, defines=("libonnxruntime.so.1", "VERS_1.31.1"))
    assert _stamp("libonnxruntime.so.1", host) == "1.31.1"


@pytest.mark.parametrize(
    ("rodata", "version"),
    [
        (b"Delete\x001.23.2\x00onnxruntime version mismatch\x00", "1.23.2"),
        (b"\x001.21.0\x00\x001.21.0\x00", "1.21.0"),
        (b"\x001.23.2\x00\x001.21.0\x00", None),
        (b"\x003.21.12\x00", None),
        (b"\x001.23.2rc\x00, 1.23.2\x00", None),
        (b"", None),
    ],
)
def test_ort_s_provider_holds_it_as_a_string_of_its_own(rodata: bytes, version: str | None) -> None:
    assert _stamp(PROVIDER, elf({".rodata": rodata}, defines=(PROVIDER, "VERS_1.0"))) == version


def test_two_sections_of_the_name_are_refused() -> None:
    """A linker makes one; thousands over the same bytes would be searched thousands of times."""
    library = bytearray(elf({".rodata": b"\x001.23.2\x00", ".data": b"\x001.23.2\x00"}))
    (table,) = struct.unpack_from("<Q", library, 40)
    sections = read_sections(bytes(library))
    first, second = (table + 64 * [one.name for one in sections].index(name) for name in (".rodata", ".data"))
    library[second : second + 4] = library[first : first + 4]
    with pytest.raises(ElfError, match=r"two sections named \.rodata") as caught:
        _stamp(PROVIDER, bytes(library))
    assert caught.value.offset == library.rindex(b"\x001.23.2\x00")


def test_a_string_elsewhere_is_no_mark() -> None:
    assert _stamp(PROVIDER, elf({".nv_fatbin": b"\x001.23.2\x00"})) is None


@pytest.mark.parametrize(("number", "version"), [(0x090A02, "9.10.2"), (0x091C00, "9.28.0"), (0, None)])
def test_cudnn_exports_it_as_a_number(number: int, version: str | None) -> None:
    assert _stamp(GRAPH, _cudnn(struct.pack("<II", 7, number), 4)) == version


def test_numbers_that_differ_are_no_mark() -> None:
    two = ("cudnn_graph_version", "cudnn_ops_infer_version")
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, 0, names=two)) is None
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, 4, names=two)) == "9.10.2"


def test_another_symbol_is_no_mark() -> None:
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, names=("cudnnGetVersion",))) is None


def test_a_symbol_beyond_its_section_is_no_mark() -> None:
    assert _stamp(GRAPH, _cudnn(RELEASE, 5)) is None


def test_nvrtc_names_what_it_opens() -> None:
    rodata = b"failed to open libnvrtc-builtins.so.12.8.\x00libnvrtc-builtins.so.12.9\x00"
    assert _stamp("libnvrtc.so.12", elf({".rodata": rodata})) == "12.9"
    assert _stamp("libnvrtc-builtins.so.12.9", elf({".rodata": rodata})) is None


def test_a_library_we_know_nothing_of() -> None:
    assert _stamp("libcudart.so.12", elf({".rodata": b"\x001.2.3\x00"})) is None


def test_more_symbols_than_any_library_has() -> None:
    library = _cudnn(RELEASE, 4)
    (table,) = struct.unpack_from("<Q", library, 40)
    names = [section.name for section in read_sections(library)]
    big = bytearray(library + bytes(24 << 20) + bytes(24))
    struct.pack_into("<QQ", big, table + 64 * names.index(".dynsym") + 24, len(library), (24 << 20) + 24)
    with pytest.raises(ElfError, match="1,048,577 dynamic symbols") as caught:
        _stamp(GRAPH, bytes(big))
    assert caught.value.offset == len(library)


def test_any_changed_byte_is_read_or_refused() -> None:
    source = random.Random(9)  # noqa: S311 - mutations that repeat
    library = _cudnn(RELEASE, 4)
    for _ in range(3000):
        bad = bytearray(library)
        for _ in range(source.randint(1, 4)):
            bad[source.randrange(len(bad))] = source.randrange(256)
        with suppress(ElfError):
            _stamp(GRAPH, bytes(bad))


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ("wheel:nvidia-cudnn-cu12==9.10.2.21", "9.10.2"),
        ("wheel:onnxruntime-gpu==1.23.2", "1.23.2"),
        ("wheel:onnxruntime-gpu==1.23", None),
        ("built", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_the_version_of_a_wheel(source: str, version: str | None) -> None:
    assert wheel_version(source) == version


def test_versions_are_compared_as_numbers() -> None:
    assert highest(["2.9", None, "2.28"]) == "2.28"
    assert highest([None]) is None
