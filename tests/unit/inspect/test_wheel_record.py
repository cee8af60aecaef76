"""Tests of records of wheels: they are read back as written, and other files are refused with a reason."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builder.binary.library import Inspected
from builder.errors import ConfigError, ValidationError
from builder.inspect.report.wheel_record import dumps, loads, require_wheel
from tests.support.factories.wheel_records import library, two_releases, unit, wheel_record


def test_a_record_comes_back_as_it_was_written() -> None:
    record, _ = two_releases()
    assert loads(dumps(record), "here") == record


def test_a_record_says_what_is_judged_of_the_wheel() -> None:
    record = wheel_record("1.0", library(unit("75 80", "80")))
    wanted = {"7.0": "none", "7.5": "native", "8.0": "native", "8.6": "native", "8.9": "native", "9.0": "jit"}
    assert {device: how for device, how in record.verdicts.items() if device in wanted} == wanted
    assert "8.7" not in record.verdicts, "its machines are ARM"


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
        ("py3-none-manylinux2014_aarch64", "Linux aarch64"),
        ("cp312-cp312-win_amd64", "Windows x86-64"),
        ("cp312-cp312-win_arm64", "Windows aarch64"),
        ("cp312-cp312-macosx_14_0_arm64", "macOS aarch64"),
        ("py3-none-any", "any machine"),
    ],
)
def test_name_version_and_platform_are_those_of_the_file(tags: str, platform: str) -> None:
    record = replace(two_releases()[0], filename=f"Demo_Pkg-2.10.post1-{tags}.whl")
    assert (record.name, str(record.version), record.platform) == ("demo-pkg", "2.10.post1", platform)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 2', "has format 2"),
        ('"size": 1234567', '"size": "big"', "size: a whole number is wanted"),
        ('"date"', '"day"', "day: unknown key"),
        (".whl", ".zip", "not the name of a wheel"),
        ('"75"', '"seventy"', "not an architecture"),
        ('"LIBRARY"', '"BOAT"', "BOAT"),
        ("{", "", "not JSON"),
    ],
)
def test_what_is_no_record_is_refused_by_its_name(old: str, new: str, said: str) -> None:
    text = dumps(two_releases()[0])
    assert old in text
    with pytest.raises(ConfigError, match=r"a\.json") as raised:
        loads(text.replace(old, new, 1), "a.json")
    assert said in str(raised.value)


def test_a_file_that_is_no_wheel_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"'demo\.zip' is not the name of a wheel"):
        require_wheel("demo.zip")
