"""Tests of ``<package>.build.json``: wrong keys are named, and what fits no schema is refused."""

import json
from dataclasses import replace

import pytest

from builder.contents import build_record
from builder.errors import ConfigError, ParseError, SchemaError
from builder.formats.json_values import json_text
from tests.support.factories.records import COMPILED, REPACKED, TOOK
from tests.support.messages import Told
from tests.support.schemas import schema


def test_what_is_written_fits_the_schema(told: Told) -> None:
    for record in (COMPILED, REPACKED, replace(COMPILED, compile=None)):
        schema("build").validate(json.loads(json_text(record)))
    told(json_text(COMPILED))
    assert not schema("build").is_valid({**json.loads(json_text(REPACKED)), "compile": vars(TOOK)})


@pytest.mark.parametrize("text", ["", "{", "null", "[" * 100_000, b"\xff\xfe{"])
def test_text_that_is_no_record_is_refused(text: str | bytes) -> None:
    with pytest.raises(ParseError if text == "{" else ConfigError, match=r"^record\.json"):
        build_record.loads_compile(text, "record.json")


def test_the_record_of_the_build_container_is_read() -> None:
    assert build_record.loads_compile(json.dumps(vars(TOOK)).encode(), "record.json") == TOOK


@pytest.mark.parametrize("change", [{"cpu_s": float("nan")}, {"units": 1.5}, {"new": 1}])
def test_a_wrong_record_of_the_container_is_told_by_key(change: dict[str, object], told: Told) -> None:
    with pytest.raises(SchemaError) as caught:
        build_record.loads_compile(json.dumps({**vars(TOOK), **change}), "record.json")
    told(caught.value)
