"""Tests of version marks and of names of libraries opened at run time, among the constants of ELF files.

``readelf``, ``strings`` and a hex dump show their form in the real libraries.
"""

import struct
from functools import partial

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import FormatError, read_sections
from builder.binary.embedded import (
    archive_behind,
    dlopened_names,
    embedded_version,
    static_libraries,
)
from builder.binary.library import wheel_version
from tests.support.factories.binaries import assert_refused, elf, header_of, patched
from tests.support.tables import table

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


@pytest.mark.parametrize(("rodata", "version"), table("libraries/stamps.txt"))
def test_ort_s_provider_holds_it_as_a_string_of_its_own(rodata: str, version: str) -> None:
    library = elf({".rodata": rodata.replace("\\0", "\0").encode()}, defines=(PROVIDER, "VERS_1.0"))
    assert _stamp(PROVIDER, library) == (version or None)


def test_two_sections_of_the_name_are_refused() -> None:
    """A linker makes one such section; thousands over the same bytes would be searched thousands of times."""
    library = elf({".rodata": b"\x001.23.2\x00", ".data": b"\x001.23.2\x00"})
    name = struct.unpack_from("<I", library, header_of(library, ".rodata"))
    twice = patched(library, header_of(library, ".data"), "<I", *name)
    offset = library.rindex(b"\x001.23.2\x00")
    assert_refused(partial(_stamp, PROVIDER), FormatError, twice, "two sections named .rodata", offset)


def test_a_section_without_bytes_in_the_file_holds_no_mark() -> None:
    for name, library in ((PROVIDER, elf({".rodata": b"\x001.23.2\x00"})), (GRAPH, _cudnn(RELEASE, 4))):
        assert _stamp(name, library) is not None
        bss = patched(library, header_of(library, ".rodata") + 4, "<I", 8)  # SHT_NOBITS
        assert _stamp(name, bss) is None


@pytest.mark.parametrize(
    ("value", "address", "version"),
    [(0x1004, 0x1000, "9.10.2"), (0x1005, 0x1001, "9.10.2"), (0x1003, 0x1004, None), (0x1000, 0, None)],
)
def test_a_symbol_s_value_is_an_address(value: int, address: int, version: str | None) -> None:
    """The offset in the section is the value minus the section's address in memory."""
    library = _cudnn(RELEASE, value)
    moved = patched(library, header_of(library, ".rodata") + 16, "<Q", address)
    assert _stamp(GRAPH, moved) == version


@pytest.mark.parametrize(
    ("place", "form", "field"),
    [
        (4, "<B", 0x12),  # a function
        (6, "<H", 0),  # defined elsewhere
        (6, "<H", 7),  # a section that does not exist
        (6, "<H", 0xFFF1),  # absolute
        (16, "<Q", 8),  # eight bytes long
    ],
)
def test_what_is_no_number_is_no_mark(place: int, form: str, field: int) -> None:
    library = _cudnn(RELEASE, 4)
    sections = read_sections(library)
    assert len(sections) == 7
    symbol = next(one for one in sections if one.name == ".dynsym").offset + 24
    assert _stamp(GRAPH, patched(library, symbol + place, form, field)) is None


@pytest.mark.parametrize(
    ("number", "version"), [(0x090A02, "9.10.2"), (0x091C00, "9.28.0"), (0xFFFF0001, "65535.0.1"), (0, None)]
)
def test_cudnn_exports_it_as_a_number(number: int, version: str | None) -> None:
    assert _stamp(GRAPH, _cudnn(struct.pack("<II", 7, number), 4)) == version


def test_numbers_that_differ_are_no_mark() -> None:
    two = ("cudnn_graph_version", "cudnn_ops_infer_version")
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, 0, names=two)) is None
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, 4, names=two)) == "9.10.2"
    assert _stamp(GRAPH, _cudnn(RELEASE, 4, 99, names=two)) == "9.10.2"  # the second has no value


def test_nvrtc_names_what_it_opens() -> None:
    rodata = b"failed to open libnvrtc-builtins.so.12.8.\x00libnvrtc-builtins.so.12.9\x00"
    assert _stamp("libnvrtc.so.12", elf({".rodata": rodata})) == "12.9"
    assert _stamp("libnvrtc-builtins.so.12.9", elf({".rodata": rodata})) is None


def test_more_symbols_than_any_library_has() -> None:
    library = _cudnn(RELEASE, 4)
    size = (24 << 20) + 24
    big = patched(library + bytes(size), header_of(library, ".dynsym") + 24, "<QQ", len(library), size)
    with pytest.raises(FormatError, match="1,048,577 dynamic symbols") as caught:
        _stamp(GRAPH, big)
    assert caught.value.offset == len(library)


def test_the_version_of_a_wheel() -> None:
    assert wheel_version("wheel:nvidia-cudnn-cu12==9.10.2.21") == "9.10.2"
    assert wheel_version("wheel:onnxruntime-gpu==1.23.2") == "1.23.2"
    assert [wheel_version(source) for source in ("wheel:onnxruntime-gpu==1.23", "built", "")] == [None] * 3


def _opens(name: str, rodata: bytes, section: str = ".rodata") -> tuple[str, ...]:
    data = elf({".fini": b"\xc3" * 64, section: rodata})
    return dlopened_names(data, name, read_elf(data))


@pytest.mark.parametrize(("name", "rodata", "names"), table("libraries/dlopen.txt"))
def test_names_alone_between_zero_bytes(name: str, rodata: str, names: str) -> None:
    data = rodata.replace("\\0", "\0").replace("\\n", "\n").encode()
    assert " ".join(_opens(name, data)) == names


def test_only_constants_are_looked_at() -> None:
    assert _opens("libcudnn.so.9", b"\0libcudnn_ops.so\0", ".data") == ()
    data = elf({".data": b"\0libcudnn_ops.so\0", ".rodata": b"\0" * 9 + b"libcudnn_cnn.so", ".x": bytes(8)})
    assert dlopened_names(data, "libcudnn.so.9", read_elf(data)) == ()


def test_a_file_full_of_names_is_not_read_to_its_end() -> None:
    assert len(_opens("libcudnn.so.9", b"".join(b"\0libcudnn_%d.so\0" % n for n in range(9999)))) == 64


@pytest.mark.parametrize(
    ("behind", "kind"),
    [
        (b"", ""),
        (bytes(64), ""),
        (b"PK\x03\x04" + bytes(99), "a zip"),
        (bytes(512) + b"hsqs" + bytes(99), "a squashfs image"),
        (bytes(9) + b"7z\xbc\xaf\x27\x1c" + bytes(99), "a 7z archive"),
        (bytes(1 << 14) + b"PK\x05\x06" + bytes(18), "a zip"),
    ],
)
def test_an_archive_behind_a_program_is_seen(behind: bytes, kind: str) -> None:
    """Self-extracting programs, and AppImages, carry one behind their sections."""
    library = elf({".rodata": b"x"})
    assert archive_behind(library + behind, read_sections(library)) == kind


def test_an_archive_of_pyinstaller_in_a_section_is_seen() -> None:
    program = elf({"pydata": bytes(1 << 14) + b"MEI\x0c\x0b\x0a\x0b\x0e" + bytes(80)})
    assert archive_behind(program, read_sections(program)) == "an archive of PyInstaller"


def test_a_function_that_no_other_file_brings_is_linked_in() -> None:
    names = b"\0cudnnCreate\0cublasCreate_v2\0"
    assert static_libraries(names, ["libc.so.6"]) == ("cuDNN", "cuBLAS")
    assert static_libraries(names, ["libcublas.so.11"]) == ("cuDNN",)
