"""Tests of objects, archives of objects, bare cubins and PTX: recognised by their first bytes, and judged."""

import struct

import pytest

from builder.binary import bare_images, fatbin, file_kinds, payloads
from builder.binary.coverage import LibraryCoverage, Support
from builder.binary.fatbin_format import Kind
from builder.binary.file_kinds import FileKind, kind_of
from builder.binary.library import Reading, read_library
from builder.facts.gpu.architectures import Arch, Capability
from tests.support import present
from tests.support.factories.archives_of_objects import ar, as_object, bsd_ar
from tests.support.factories.binaries import elf, sass
from tests.support.factories.cubins import cubin
from tests.support.factories.nvidia import ARCHES, SMALL, compiled, packed
from tests.support.factories.pe import pe
from tests.support.factories.repacked import arm64

OBJECT = as_object(elf({".text": sass(50), ".nv_fatbin": sass(75) + sass(80)}))

PTX = (
    b"// made by hand\n/* in * two\n lines */ .version 8.4 // of CUDA 12.4\n"
    b"\t.target sm_90a, debug\n.entry k() {ret;}"
)


def problem(found: Reading) -> str:
    given = present(found.problem)
    return f"{given.code.name} {given.message}"


def covered(name: str, data: bytes) -> LibraryCoverage:
    found = read_library(name, data)
    assert found.problem is None
    return present(found.coverage)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (elf(), FileKind.LIBRARY),
        (OBJECT, FileKind.OBJECT),
        (pe(), FileKind.DLL),
        (ar({"a.o": OBJECT}), FileKind.ARCHIVE),
        (b"!<thin>\n", FileKind.ARCHIVE),
        (sass(75), FileKind.FATBIN),
        (compiled(SMALL, "75")[0].data, FileKind.CUBIN),
        (compiled(SMALL, "75")[1].data, FileKind.PTX),
        (b"\x7fELF", FileKind.LIBRARY),
        (b"// C\n.version 8.4\n.section .text", None),
        (b"/* never closed .version 8.4\n.target sm_90", None),
        (b"#!/bin/sh", None),
    ],
)
def test_a_kind_is_told_by_first_bytes(data: bytes, kind: FileKind | None) -> None:
    assert kind_of(data) is kind
    if kind:
        assert read_library("any.name", data).kind is kind


@pytest.mark.parametrize("arch", ARCHES)
def test_a_bare_cubin_says_its_architecture(arch: str) -> None:
    """A cubin's flags have no suffix f (llvm/BinaryFormat/ELF.h), but its recorded assembler options have."""
    found = covered(f"k.sm_{arch}.cubin", compiled(SMALL, arch)[0].data)
    assert (found.containers, found.nothing_to_run, [*map(str, found.sass)]) == (1, 0, [arch])


def test_a_cubin_whose_flags_have_no_suffix_says_it_in_its_assembler_s_words() -> None:
    """CUDA 13 sets no flag for suffix a; recorded options for another architecture must not count."""
    data = bytearray(compiled(SMALL, "100a")[0].data)
    assert data[48:49] == b"\x0a"
    data[48] = 4
    both = data, data.replace(b"-arch sm_100a", b"-arch sm_103a")
    found = [covered("k.cubin", bytes(one)).sass for one in both]
    assert [list(map(str, arches)) for arches in found] == [["100a"], ["100"]]


@pytest.mark.parametrize(("arch", "told"), [(60, "60"), (89, "89"), (90, "90a")])
def test_no_architecture_below_9_0_has_a_suffix(arch: int, told: str) -> None:
    """Defect: libtorch_cpu of torch 1.13.1 has the bit in a cubin for sm_60, which was told as ``60a``."""
    found = covered("k.cubin", cubin(0x800 | arch, {"_Z3addv": b"\1" * 128}))
    assert [*map(str, found.sass)] == [told]


@pytest.mark.parametrize(
    ("arch", "support"), [("50", Support.JIT), ("90a", Support.JIT), ("120f", Support.NONE)]
)
def test_bare_ptx_says_its_architecture_and_version(arch: str, support: Support) -> None:
    found = covered("k.ptx", compiled(SMALL, arch)[1].data)
    assert (found.ptx, found.isa) == ((Arch.parse(arch),), (8, 8))
    assert found.support[Capability(9, 0)] is support


def test_a_cubin_that_is_cut_short_is_told_so() -> None:
    whole = compiled(SMALL, "90")[0].data
    assert problem(read_library("k.cubin", whole[:-1])).startswith("A004 truncated: a cubin's headers")
    assert problem(read_library("k.cubin", whole[:40])) == (
        "A004 truncated: the file ends within its header (at offset 0x0)"
    )
    spoiled = whole[:48] + struct.pack("<I", 5) + whole[52:]
    assert problem(read_library("k.cubin", spoiled)) == "A004 a cubin for architecture 5 (at offset 0x0)"


def test_an_object_with_more_sections_than_its_header_can_count() -> None:
    """System V ABI, "Sections": e_shnum is zero, and the first section's sh_size has the number."""
    many = bytearray(OBJECT)
    (table,) = struct.unpack_from("<Q", many, 40)
    count, names = struct.unpack_from("<HH", many, 60)
    struct.pack_into("<HH", many, 60, 0, 0xFFFF)
    struct.pack_into("<QI", many, table + 32, count, names)
    assert read_library("unit.o", bytes(many)).coverage == read_library("unit.o", OBJECT).coverage


def test_names_of_an_object_s_sections_may_be_as_long_as_its_file() -> None:
    """Objects have a section for each function, with C++ names; a library may have a megabyte of names."""
    sections = {f".text.{place:030000}": b"" for place in range(40)}
    library = elf({**sections, ".nv_fatbin": sass(75)})
    assert problem(read_library("libx.so", library)).startswith("E001 more than 1,048,576 bytes of names")
    assert read_library("unit.o", as_object(library)).problem is None


def test_an_archive_is_judged_by_all_its_members() -> None:
    cubin = compiled(SMALL, "86")[0].data
    whole = ar(
        {
            "a.o": OBJECT,
            "odd": b"text",
            "a_member_with_a_long_name.o": as_object(elf({"__nv_relfatbin": sass(90)})),
            "k.cubin": cubin,
            "coff.obj": b"\x64\x86" + bytes(60) + sass(120),
        }
    )
    found = read_library("libdemo_static.a", whole)
    assert (found.kind, found.machine, found.problem) == (FileKind.ARCHIVE, "x86-64", None)
    assert [one.section for one in found.containers] == [*[".nv_fatbin"] * 2, "__nv_relfatbin", "", ""]
    held = [str(arch) for one in found.containers for arch in one.arches(Kind.SASS)]
    assert held == ["75", "80", "90", "86", "120"]
    assert all(whole[one.offset :].startswith((b"\x50\xed\x55\xba", b"\x7fELF")) for one in found.containers)
    coverage = present(found.coverage)
    assert (coverage.unlinked, coverage.specialised) == (1, False)


def test_members_with_bsd_s_long_names_are_objects_too() -> None:
    loose = as_object(elf({"__nv_relfatbin": sass(90)}))
    whole = bsd_ar({"__.SYMDEF SORTED": b"\0" * 8, "a_name_of_19_bytes.o": loose, "b.o": OBJECT})
    found = read_library("libdemo.a", whole)
    assert [one.section for one in found.containers] == ["__nv_relfatbin", ".nv_fatbin", ".nv_fatbin"]
    assert all(whole[one.offset :].startswith(b"\x50\xed\x55\xba") for one in found.containers)
    assert (found.machine, found.problem, present(found.coverage).unlinked) == ("x86-64", None, 1)
    long_name = bsd_ar({"broken_by_truncation.o": OBJECT[:99]})
    assert "broken_by_truncation.o: truncated" in problem(read_library("libdemo.a", long_name))
    assert read_library("libdemo.a", long_name.replace(b"#1/24", b"#1/99999")[:68]).problem is not None


def test_archives_without_device_code() -> None:
    assert read_library("libnone.a", b"!<arch>\n") == Reading("libnone.a", kind=FileKind.ARCHIVE)
    arm = read_library("libnone.a", ar({"a.o": arm64(as_object(elf({".text": b"x"})), kind=1)}))
    assert (arm.machine, arm.containers, arm.problem) == ("aarch64", (), None)
    assert read_library("import.lib", ar({"x.dll": b"\0\0\xff\xff"})).problem is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ar({"a.o": b""}, begin=b"!<thin>\n"), "E001 a thin archive: its objects lie elsewhere, name "),
        (ar({"a.o": OBJECT})[:-1], "E001 truncated: a member ends behind the file's end (at offset 0x48)"),
        (ar({"a.o": OBJECT})[:100], "E001 no whole header of a member where one must begin (at offset 0x48)"),
        (ar({"a.o": OBJECT[:-70]}), "E001 a.o: truncated: section headers end at "),
        (ar({"b.o": as_object(elf({".nv_fatbin": sass(75)[:-1]}))}), "A004 b.o: a container of 88 bytes"),
        (ar({"a_member_with_a_long_name.o": OBJECT[:70]}), "E001 a_member_with_a_long_name.o: truncated: "),
    ],
)
def test_what_is_no_whole_archive(data: bytes, why: str) -> None:
    assert problem(read_library("libx.a", data)).startswith(why)


def test_an_object_that_is_too_large_to_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "LARGEST_OBJECT", len(OBJECT))
    assert read_library("libx.a", ar({"a.o": OBJECT})).problem is None
    large = problem(read_library("libx.a", ar({"a.o": OBJECT + b"\0"})))
    assert f"a.o has {len(OBJECT) + 1:,} bytes: take it out by `ar x` and name it" in large


def test_more_sections_than_any_static_library_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of zeros makes many headers at no cost; the real limit takes seconds to reach."""
    (each,) = struct.unpack_from("<H", OBJECT, 60)
    monkeypatch.setattr(fatbin, "MOST_SECTIONS", 3 * each)
    assert read_library("libx.a", ar(dict.fromkeys(("a.o", "b.o", "c.o"), OBJECT))).problem is None
    crowded = read_library("libx.a", ar(dict.fromkeys(("a.o", "b.o", "c.o", "d.o"), OBJECT)))
    assert problem(crowded).startswith(f"E001 d.o: more than {3 * each} sections: take it apart by `ar x`")


def test_an_import_library_of_windows_has_as_many_members_as_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tensorflow-gpu 1.15.0 for Windows has a .lib of more than 32,768; microsoft.com's PE format has their
    first bytes."""
    monkeypatch.setattr(file_kinds, "_MOST_MEMBERS", 2)
    imports = {f"f{number}.dll": b"\0\0\xff\xff\0\0\x64\x86" + bytes(12) for number in range(5)}
    found = read_library("x.lib", ar({**imports, "a.o": OBJECT}))
    assert (found.problem, len(found.containers)) == (None, 2)
    assert "more than 2 members" in problem(read_library("y.lib", ar({f"{one}.o": OBJECT for one in "abc"})))


OLD, NEW = compiled(SMALL, "75"), compiled(SMALL, "100a")

RAW = b"data" * 4 + OLD[0].data + bytes(5) + NEW[0].data + OLD[1].data + b"\0" + OLD[0].data + b"end"

FOUND = {Kind.SASS: {Arch(7, 5): 2, Arch(10, 0, "a"): 1}, Kind.PTX: {Arch(7, 5): 1}}


def test_they_are_counted_by_kind_and_architecture() -> None:
    found = read_library("libx.so", elf({".rodata": RAW, ".nv_fatbin": sass(80)}))
    assert found.problem is None
    assert (found.raw, len(found.containers)) == (FOUND, 1)
    assert read_library("x.dll", pe({".data": RAW})).raw == FOUND


def test_what_lies_in_a_container_is_no_raw_code() -> None:
    code = packed((*OLD, *NEW), "-compress=false")
    library = elf({".rodata": bytes(8) + code + RAW + code, ".data": code})
    assert b"\x7fELF" in code
    found = read_library("libx.so", library)
    assert (found.raw, len(found.containers)) == (FOUND, 3)


def test_of_an_object_each_variable_is_searched() -> None:
    unit = as_object(elf({".rodata.cubins": RAW, ".data.rel.ro": b"x", ".text.f": RAW}))
    assert read_library("a.o", unit).raw == FOUND
    assert read_library("libx.so", elf({".rodata.cubins": RAW})).raw == {}


def test_of_an_archive_each_member_is_searched() -> None:
    """A bare cubin in an archive is a container, and data behind it is not searched."""
    unit = as_object(elf({".rodata.a": RAW, ".nv_fatbin": sass(80)}))
    library = ar(
        {"k.cubin": OLD[0].data, "a.o": unit, "coff.obj": b"\x64\x86" + RAW, "b.o": as_object(elf())}
    )
    found = read_library("libx.a", library)
    assert (found.problem, len(found.containers)) == (None, 2)
    assert found.raw == {
        kind: {arch: 2 * count for arch, count in counts.items()} for kind, counts in FOUND.items()
    }


@pytest.mark.parametrize(
    ("name", "section", "data"),
    [
        ("libx.so", ".rodata", elf() + b"\x7fELF\x02\x01\x01"),  # an ELF header of host code
        ("libx.so", ".rodata", OLD[0].data[:-1]),
        ("libx.so", ".rodata", b".version 8.4 of my program"),
        ("libx.so", ".text", RAW),
        ("libcublasLt.so.12", ".rodata", RAW),  # NVIDIA's libraries select code by device themselves
    ],
)
def test_what_is_none(name: str, section: str, data: bytes) -> None:
    found = read_library(name, elf({section: data}))
    assert (found.problem, found.raw) == (None, {})


def test_suffixes_are_searched_for_in_as_many_bytes_as_a_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """262,144 headers that each claim the rest of a file of 16 MB took a quarter of an hour."""
    family = compiled(SMALL, "100f")[0].data
    library = elf({".rodata": family * 2})
    assert read_library("libx.so", library).raw == {Kind.SASS: {Arch(10, 0, "f"): 2}}
    monkeypatch.setattr(payloads, "LARGEST", len(family))
    assert read_library("libx.so", library).raw == {Kind.SASS: {Arch(10, 0, "f"): 1, Arch(10, 0): 1}}


def test_more_beginnings_than_any_library_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_images, "MOST_MARKS", 3)
    assert read_library("libx.so", elf({".data": b".version " * 3})).problem is None
    found = problem(read_library("libx.so", elf({".data": b".version " * 4})))
    assert found.startswith("A004 more than 3 beginnings of cubins and PTX (at offset")
