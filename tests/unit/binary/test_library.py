"""Tests of all facts read from a library's bytes, and of what follows from its file name."""

import pytest

from builder.binary.coverage import Support, is_specialised
from builder.binary.elf import NO_SYMBOLS
from builder.binary.file_kinds import HEAD, FileKind
from builder.binary.library import Reading, read_library, unreadable
from builder.binary.library_names import cuda_major, is_library, is_named_like_a_library, must_hold_code
from builder.contents.required_files import vendor_of
from builder.facts.gpu.architectures import Capability
from tests.support import present
from tests.support.factories.binaries import BLACKWELL, SASS, A, Row, container, elf, image, linked, sass
from tests.support.messages import Told
from tests.support.tables import table

PROVIDER = "nvidia/lib/libonnxruntime_providers_cuda.so"


@pytest.mark.parametrize(
    ("path", "version", "support"),
    [
        ("libonnxruntime_providers_cuda.so", b"1.31.1", Support.NATIVE),
        (PROVIDER, b"1.26.0", Support.PARTIAL),  # units were not split yet
        ("nvidia/lib/libonnxruntime_providers_other.so", b"1.31.1", Support.PARTIAL),
    ],
)
def test_units_are_split_from_a_version_on(path: str, version: bytes, support: Support) -> None:
    """The official wheel 1.31.1 has units for all architectures and units for 90a alone."""
    code = container(image(SASS, 80), image(SASS, 90, A | BLACKWELL)) + container(image(SASS, 90, A))
    found = read_library(path, elf({".rodata": b"\0" + version + b"\0", ".nv_fatbin": code}))
    assert present(found.coverage).support[Capability(8, 0)] is support


def test_a_framework_s_symbols_are_in_nobody_s_way() -> None:
    """libtensorflow_cc has more symbol names than are read, and a RUNPATH of more than 4,096 bytes."""
    runpath = ":".join(["$ORIGIN/../" * 4] * 200)
    library = linked(Row("x" * 65_536), runpath=runpath)
    found = read_library("libtensorflow_cc.so.2", library, symbols=False)
    header = present(found.elf)
    assert (found.problem, header.runpath, header.symbols) == (None, runpath, NO_SYMBOLS)
    refused = present(read_library("libtensorflow_cc.so.2", library).problem)
    assert "a name does not end within its string table" in refused.message


def test_device_code_that_is_not_whole(told: Told) -> None:
    library = elf({".rodata": b"\x001.23.2\x00", ".nv_fatbin": sass(80)[:-1]})
    found = read_library(PROVIDER, library)
    assert found.elf is not None
    assert (found.embedded_version, found.containers, found.coverage) == ("1.23.2", (), None)
    told(found.problem)
    bare = read_library("x.fatbin", sass(80)[:-1])
    assert bare == Reading(path="x.fatbin", kind=FileKind.FATBIN, problem=bare.problem)
    told(bare.problem)


def test_what_is_no_whole_elf_file(told: Told) -> None:
    for found in (read_library("lib/x.so", b"#!/bin/sh\n"), unreadable("lib/x.so", "a link to nowhere")):
        assert found == Reading(path="lib/x.so", problem=found.problem)
        told(found.problem)


@pytest.mark.parametrize(("name", "begin", "named", "library"), table("libraries/files.txt"))
def test_which_files_are_libraries(name: str, begin: str, named: str, library: str) -> None:
    head = begin.encode().decode("unicode_escape").encode("latin-1")
    assert len(head) <= HEAD
    assert is_named_like_a_library(name) is (named == "yes")
    assert is_library(name, head) is (library == "yes")


@pytest.mark.parametrize(("name", "vendor", "specialised", "code"), table("libraries/names.txt"))
def test_what_a_name_tells(name: str, vendor: str, specialised: str, code: str) -> None:
    assert (vendor_of(name) or "nobody") == vendor
    assert is_specialised(f"lib/{name}") is (specialised == "yes")
    assert must_hold_code(name) is (code == "yes")


@pytest.mark.parametrize(("name", "major"), table("libraries/cuda.txt"))
def test_the_version_of_cuda_in_a_name(name: str, major: str) -> None:
    assert (cuda_major(name) or "") == major
