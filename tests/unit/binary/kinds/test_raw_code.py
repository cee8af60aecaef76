"""Tests of cubins and PTX in a library's data outside of containers."""

import pytest

from builder.binary import bare_images, payloads
from builder.binary.fatbin_format import Kind
from builder.binary.library import read_library
from builder.facts.gpu.architectures import Arch
from tests.support.factories.archives_of_objects import ar, as_object
from tests.support.factories.binaries import elf, sass
from tests.support.factories.nvidia import SMALL, compiled, packed
from tests.support.factories.pe import pe

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
    found = read_library("libx.so", elf({".data": b".version " * 4}))
    assert found.problem is not None
    assert found.problem.message.startswith("more than 3 beginnings of cubins and PTX (at offset")
