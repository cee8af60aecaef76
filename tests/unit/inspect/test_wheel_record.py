"""Tests of records of wheels: what is kept of a library suffices to judge it again."""

import json
from dataclasses import replace

import pytest

from builder.binary.coverage import Support, cover
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected, read_library
from builder.errors import ConfigError, ValidationError
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.units import UnitSet
from builder.finding import Code
from builder.formats.json_values import from_json, to_json
from builder.inspect.report.wheel_record import (
    LibraryFacts,
    dumps,
    facts_of,
    library_of,
    loads,
    require_wheel,
)
from tests.support import present
from tests.support.factories.binaries import LTOIR, ZSTD, container, elf, empty_cubin, image, relocatable
from tests.support.factories.wheel_records import library, library_bytes, two_releases, unit, wheel_record
from tests.support.tables import table


def test_a_record_comes_back_as_it_was_written() -> None:
    record, _ = two_releases()
    assert loads(dumps(record), "here") == record


def test_a_library_without_code_is_a_name() -> None:
    record = wheel_record("1.0", library(unit("75")), Inspected(name="a/libplain.so", size=9))
    assert record.without_code == ("a/libplain.so",)
    assert [item.name for item in record.source().libraries] == ["a/libplain.so", record.libraries[0].name]


def test_each_library_has_a_line_of_its_own() -> None:
    one, other = library(unit("75"), name="a.so"), library(unit("80"), name="b.so")
    lines = dumps(wheel_record("1.0", one, other)).splitlines()
    assert [json.loads(line.rstrip(","))["name"] for line in lines if '"name"' in line] == ["a.so", "b.so"]


@pytest.mark.parametrize(
    ("tags", "platform"),
    [
        ("cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64", "Linux x86-64"),
        ("cp312-cp312-win_arm64", "Windows aarch64"),
        ("cp312-cp312-macosx_14_0_arm64", "macOS aarch64"),
        ("py3-none-any", "any machine"),
    ],
)
def test_name_version_and_platform_are_those_of_the_file(tags: str, platform: str) -> None:
    record = replace(two_releases()[0], filename=f"Demo_Pkg-2.10.post1-{tags}.whl")
    assert (record.name, str(record.version), record.platform) == ("demo-pkg", "2.10.post1", platform)


@pytest.mark.parametrize(("old", "new", "said"), table("formats/records.txt"))
def test_what_is_no_record_is_refused_by_its_name(old: str, new: str, said: str) -> None:
    text = dumps(two_releases()[0])
    assert old in text
    with pytest.raises(ConfigError, match=r"a\.json") as raised:
        loads(text.replace(old, new, 1), "a.json")
    assert said in str(raised.value)


def test_a_file_that_is_no_wheel_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"'demo\.zip' is not the name of a wheel"):
        require_wheel("demo.zip")


def kept(item: Inspected) -> Inspected:
    """Return the library after a conversion to JSON and back."""
    text = json.dumps(to_json(facts_of(item)))
    return library_of(from_json(LibraryFacts, json.loads(text), "here"))


def covered(data: bytes, name: str = "lib/demo.so") -> Inspected:
    reading = read_library(name, data)
    assert reading.problem is None
    return Inspected(name=name, coverage=reading.coverage, raw=reading.raw, machine=reading.machine)


LIBRARIES = {
    "units that differ": library(unit("75 90a", "90"), unit("75"), unit("75 90a", "90")),
    "one for each device": library(unit("50"), unit("60"), unit("120"), name="lib/libcublas.so.12"),
    "relocatable": covered(relocatable(unit("80"), unit("80", "90"), unit("80"))),
    "nothing to run": covered(elf({".nv_fatbin": container(empty_cubin(80)), ".ldata": unit("70")})),
    "LTO IR and zstd": covered(elf({".nv_fatbin": container(image(LTOIR, 75), image(LTOIR, 80, ZSTD))})),
    "raw PTX": covered(elf({".rodata": b"\0.version 8.0\n.target sm_80\n.address_size 64\n.entry f(){}\0"})),
    "none": Inspected(name="libplain.so", soname="libplain.so.1", needed=("libc.so.6",), size=12),
    "cannot be read": Inspected(name="lib/cut.so", problem="E001 cut short", code=Code.E001),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_comes_back_as_it_was_read(name: str) -> None:
    assert kept(LIBRARIES[name]) == LIBRARIES[name]


def test_the_sets_that_units_were_compiled_for_come_back() -> None:
    unit_sets = (
        UnitSet("all", frozenset({Arch(7, 5), Arch(9, 0, "a")})),
        UnitSet("Hopper", frozenset({Arch(9, 0, "a")}), 2, (90, 90)),
    )
    containers = read_containers(library_bytes(unit("75 90a"), unit("90a"), unit("90a")))
    item = Inspected(name="p.so", coverage=cover("p.so", containers, specialised=False, unit_sets=unit_sets))
    back = kept(item)
    assert back == item
    assert present(back.coverage).support[Capability(7, 5)] is Support.NATIVE, (
        "no gap: two were not meant for it"
    )


def test_support_is_judged_again_and_not_kept() -> None:
    """The planted change, as by hand in the file, is one more container that holds sm_80 alone."""
    facts = facts_of(library(unit("75"), unit("75")))
    (held,) = present(facts.coverage).held
    changed = replace(present(facts.coverage), held=(held, replace(held, containers=1, sass="80")))
    coverage = present(library_of(replace(facts, coverage=changed)).coverage)
    assert coverage.support[Capability(7, 5)] is Support.PARTIAL
    assert coverage.images[".nv_fatbin"][Kind.SASS] == {Arch(7, 5): 2}


@pytest.mark.parametrize(
    "broken", [{"kind": "BOAT"}, {"code": "E9999"}, {"raw": {"sass": {"9": 1}}}, {"raw": {"boat": {}}}]
)
def test_what_no_reader_wrote_is_refused(broken: dict[str, object]) -> None:
    facts = LibraryFacts(**{**vars(facts_of(LIBRARIES["none"])), **broken})
    with pytest.raises(ValueError, match=r"libplain|architecture|boat"):
        library_of(facts)
