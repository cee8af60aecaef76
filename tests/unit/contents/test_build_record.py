"""Tests of ``<package>.build.json``: wrong keys are named, and a record is for one package's bytes only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.contents.build_record import (
    CompileRecord,
    loads,
    loads_compile,
    record_name,
)
from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.farm import costs as container
from builder.formats.json_values import json_text
from tests.support.factories.records import (
    COMPILED,
    REPACKED,
    TOOK,
)
from tests.support.messages import Told
from tests.support.schemas import schema


def test_what_is_written_fits_the_schema_and_comes_back() -> None:
    for record in (COMPILED, REPACKED, replace(COMPILED, compile=None)):
        schema("build").validate(json.loads(json_text(record)))
        assert loads(json_text(record), "x") == record
        assert loads(json_text(record).encode(), "x") == record


def test_it_says_what_was_made_and_how(told: Told) -> None:
    told(json_text(COMPILED))


WRONG = [
    {"format": 2},
    {"format": None},
    {"colour": "red"},
    {"profile": 1},
    {"sha256": "AB"},
    {"date": "yesterday"},
    {"date": "2026-11-21T17:05:00+01:00"},
    {"command": "./run build --variant x`\n| y |"},
    {"command": "rm -rf /"},
    {"package": "../legacy.tar.zst"},
    {"compile": {"units": 1}},
    {"compile": {**vars(TOOK), "cpu_s": 1.5}},
    {"compile": {**vars(TOOK), "units": -1}},
    {"date": "", "sha256": ""},
]


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_record_is_told_by_key_and_refused_by_the_schema_too(
    change: dict[str, object], told: Told
) -> None:
    document = {**json.loads(json_text(COMPILED)), **change}
    with pytest.raises((SchemaError, ValidationError)) as caught:
        loads(json.dumps(document), "a.build.json")
    told(caught.value)
    assert not schema("build").is_valid(document)


def test_a_repacked_wheel_compiled_nothing() -> None:
    assert not schema("build").is_valid({**json.loads(json_text(REPACKED)), "compile": vars(TOOK)})


@pytest.mark.parametrize("read", [loads, loads_compile])
@pytest.mark.parametrize("text", ["", "{", "null", "[]", "[" * 100_000, b"\xff\xfe{", '{"format": 1'])
def test_text_that_is_no_record_is_refused(read: Callable[..., object], text: str | bytes) -> None:
    with pytest.raises(ParseError if text == "{" else ConfigError, match=r"^a\.build\.json"):
        read(text, "a.build.json")


def test_the_record_of_the_build_container_is_read(tmp_path: Path) -> None:
    """Two units, one of them compiled twice; ccache answered for a third one; two Ninja runs."""
    (tmp_path / "units.log").write_text(
        "1000 4000 2900 1048576 137 a.o\n"  # killed
        "2000 3000 900 524288 0 b.o\n"
        "9000 12600 3500 1048576 0 a.o\n"
    )
    (tmp_path / "ccache-stats.log").write_text("# c.cc\ndirect_cache_hit\n# b.cc\ncache_miss\n")
    container.begin_run(tmp_path, 1.0, 2)
    container.begin_run(tmp_path, 8.5, 1)
    container.write_record(tmp_path / "record.json", tmp_path)
    found = loads_compile((tmp_path / "record.json").read_bytes(), "record.json")
    assert found == CompileRecord(
        units=2,
        compilations=3,
        cache_hits=1,
        cpu_s=7,  # 7.3
        wall_s=7,  # 3 + 4.1
        runs=2,
        jobs=2,
        busy_percent=75,  # 3 + 1 + 3.6 of 2 * 3 + 4.1
        peak_mib=1536,
        longest_unit_s=4,  # 3.6
    )
    assert found.repeated == 1


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_s": float("nan")},
        {"wall_s": float("inf")},
        {"units": 1.5},
        {"jobs": -2},
        {"format": 3},
        {"new": 1},
    ],
)
def test_a_wrong_record_of_the_container_is_told_by_key(change: dict[str, object], told: Told) -> None:
    with pytest.raises((SchemaError, ValidationError)) as caught:
        loads_compile(json.dumps({"format": 1, **vars(TOOK), **change}), "record.json")
    told(caught.value)


def test_the_record_lies_beside_the_archive_under_its_name() -> None:
    assert record_name("ortpacks-a-1.2.3-cuda12.9-linux-x64.tar.zst") == (
        "ortpacks-a-1.2.3-cuda12.9-linux-x64.build.json"
    )
