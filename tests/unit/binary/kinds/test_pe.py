"""Tests of Windows libraries: their headers, and their device code, judged as in ELF libraries."""

import struct
from pathlib import Path

import pefile
import pip
import pytest

from builder.binary.coverage import Support
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Kind
from builder.binary.file_kinds import FileKind
from builder.binary.library import read_library
from builder.binary.library_names import is_library
from builder.binary.pe import Pe, PeError, read_pe
from builder.facts.gpu.architectures import Capability
from builder.finding import Code
from tests.support import present
from tests.support.factories.binaries import sass
from tests.support.factories.pe import ARM64, X64, X86, linked_pe, pe
from tests.support.messages import Told
from tests.support.tables import table

NAMED = pe(
    soname="demo.dll", needed=("cudart64_12.dll", "KERNEL32.dll"), delayed=("cudnn64_9.dll", "KERNEL32.dll")
)


def windows(code: bytes) -> bytes:
    """Return the containers as compiled for Windows: 0x10 in each image's flags becomes 0x40."""
    return code.replace(struct.pack("<I", 0x2011), struct.pack("<I", 0x2041))


def test_the_libraries_that_its_exports_lead_on_to() -> None:
    found = read_pe(pe(soname="a.dll", forwards=("NTDLL.RtlZeroMemory", "b.c.Start", "NTDLL.#7")))
    assert found.forwards == ("NTDLL.dll", "b.c.dll")
    assert read_pe(NAMED).forwards == ()


@pytest.mark.parametrize(("machine", "name"), [(X64, "x86-64"), (ARM64, "aarch64"), (X86, "x86")])
def test_its_machine(machine: int, name: str) -> None:
    library = pe(
        soname="a.dll", needed=("b.dll",), delayed=("c.dll",), machine=machine, old_delayed=machine == X86
    )
    assert read_pe(library) == Pe(read_pe(library).sections, name, "a.dll", ("b.dll", "c.dll"))


def test_its_containers_by_the_full_names_of_their_sections() -> None:
    library = pe(
        {".text": sass(50), ".nv_fatbin": windows(sass(75) + sass(80)), ".data": b"x" * 8 + windows(sass(90))}
    )
    found = read_library("bin/demo.dll", library)
    assert (found.kind, found.problem) == (FileKind.DLL, None)
    assert [one.section for one in found.containers] == [".nv_fatbin", ".nv_fatbin", ".data"]
    assert present(found.coverage).support[Capability(8, 6)] is Support.PARTIAL


def test_code_that_is_marked_as_linux_s_counts_too() -> None:
    """cuFFT 11.4 for Windows has 24,453 containers with Linux flags in its data."""
    library = pe({".nv_fatbin": windows(sass(75)), ".data": sass(80)})
    assert [one.images[0].kind for one in read_containers(library)] == [Kind.SASS, Kind.SASS]
    mac = sass(75).replace(struct.pack("<I", 0x2011), struct.pack("<I", 0x2021))
    assert [one.images[0].kind for one in read_containers(pe({".nv_fatbin": mac}))] == [Kind.OTHER]


def test_a_provider_for_windows_holds_its_version() -> None:
    library = pe({".nv_fatbin": windows(sass(75))}, data=b"\x001.31.1\x00")
    assert read_library("capi/onnxruntime_providers_cuda.dll", library).embedded_version == "1.31.1"


def test_what_a_device_link_made_is_judged() -> None:
    found = read_library("demo.dll", linked_pe(windows(sass(75, 80)), windows(sass(75)), windows(sass(75))))
    assert found.problem is None
    assert [(one.section, one.linked) for one in found.containers] == [
        ("__nv_relfatbin", False),
        ("__nv_relfatbin", False),
        (".nv_fatbin", True),
    ]
    coverage = present(found.coverage)
    assert (coverage.link_inputs, coverage.support[Capability(8, 0)]) == (2, Support.NATIVE)


@pytest.mark.parametrize("size", [64, 0x80, 0x84, 0x97, 0x98, 0x110, 0x188, 0x1D8, 0x200, 0x2FF])
def test_one_that_is_cut_short_is_told_so(size: int) -> None:
    problem = present(read_library("demo.dll", NAMED[:size]).problem)
    assert (problem.code, problem.message[:10]) == (Code.E001, "truncated:")


def test_a_signature_that_is_cut_short_is_told_though_all_sections_are_there() -> None:
    """Directory 4 has the only address that is an offset in the file, behind the last section."""
    entry = struct.pack("<II", len(NAMED), 64)
    whole = NAMED[:0x128] + entry + NAMED[0x130:] + bytes(64)
    assert read_pe(whole) == read_pe(NAMED)
    with pytest.raises(PeError, match="truncated: its signature ends at"):
        read_pe(whole[:-1])


@pytest.mark.parametrize("row", table("libraries/pe-headers.txt"), ids=lambda row: row[0])
def test_headers_that_lie(row: list[str], told: Told) -> None:
    at, value = int(row[1], 16), bytes.fromhex(row[2])
    told(read_library("demo.dll", NAMED[:at] + value + NAMED[at + len(value) :]).problem)


def test_imports_without_an_end() -> None:
    endless = pe({".nv_fatbin": windows(sass(75))}, needed=["a.dll"] * 1100)
    with pytest.raises(PeError, match="a directory of imports without an end"):
        read_pe(endless)


@pytest.mark.parametrize(
    ("name", "data", "belongs"),
    [
        *((name, b"", True) for name in ("a.pyd", "a.exe", "A.PYD", "empty.DLL")),
        ("readme", NAMED[:64], True),
        ("readme", NAMED[:63], False),
        ("MZ.txt", b"MZ is what DOS programs begin with, and so does this text. ".ljust(64, b"."), False),
    ],
)
def test_what_belongs_into_a_report(name: str, data: bytes, belongs: bool) -> None:
    assert is_library(name, data) is belongs


LAUNCHERS = sorted((Path(pip.__file__).parent / "_vendor" / "distlib").glob("*.exe"))


def others(file: Path) -> tuple[list[str], list[str]]:
    """Return a file's sections and imports, read by pefile."""
    other = pefile.PE(str(file))
    tables = (getattr(other, f"DIRECTORY_ENTRY_{kind}", []) for kind in ("IMPORT", "DELAY_IMPORT"))
    needed = [entry.dll.decode() for table in tables for entry in table]
    return [section.Name.rstrip(b"\0").decode() for section in other.sections], needed


def test_another_reader_sees_the_same(tmp_path: Path) -> None:
    made = tmp_path / "demo.dll"
    made.write_bytes(NAMED)
    assert LAUNCHERS
    for file in (made, *LAUNCHERS):
        found = read_pe(file.read_bytes())
        sections, needed = others(file)
        assert [section.name[:8] for section in found.sections] == sections, file
        assert list(found.needed) == list(dict.fromkeys(needed)), file
