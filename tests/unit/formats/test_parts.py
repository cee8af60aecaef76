"""Tests of the file that joins parts: names that lead elsewhere and sizes with a wrong sum are refused."""

from __future__ import annotations

import json

import pytest

from builder.errors import ParseError, SchemaError, ValidationError
from builder.formats.json_values import json_text
from builder.formats.parts import Parts, StoredFile, loads, part_names
from tests.support.json_texts import changed
from tests.support.schemas import schema

FILE = "ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.zst"

PARTS = Parts(
    format=1,
    file=FILE,
    size=12,
    sha256="ab" * 32,
    parts=(StoredFile(f"{FILE}.part1", 10, "cd" * 32), StoredFile(f"{FILE}.part2", 2, "ef" * 32)),
)


def test_it_is_written_and_read_back_and_its_schema_takes_it() -> None:
    text = json_text(PARTS)
    assert loads(text, "x") == PARTS
    assert list(json.loads(text)) == ["format", "file", "size", "sha256", "parts"]
    schema("parts").validate(json.loads(text))


def test_names_in_their_order_are_sorted_names() -> None:
    assert part_names("x.tar.gz", 2) == ("x.tar.gz.part1", "x.tar.gz.part2")
    twelve = part_names("x", 12)
    assert (twelve[0], twelve[-1]) == ("x.part01", "x.part12")
    assert sorted(twelve) == list(twelve)


@pytest.mark.parametrize(
    ("path", "value", "error", "says"),
    [
        ("parts/1/file", "../../etc/passwd", ValidationError, r"parts\[1\]\.file: '../../etc/passwd'"),
        ("parts/0/file", f"{FILE}.part2", ValidationError, r"parts\[0\]\.file: .*part2' stands where"),
        ("file", "../x", ValidationError, "file: '../x' is not a plain file name"),
        ("file", "-rf", ValidationError, "not a plain file name"),
        ("size", 13, ValidationError, "size: 13 bytes, and the parts have 12 together"),
        ("parts/1/size", 0, ValidationError, r"parts\[1\]\.size: 0 bytes"),
        ("parts/1/size", -2, ValidationError, r"parts\[1\]\.size: -2 bytes"),
        ("parts/1", ..., ValidationError, "the parts have 10 together"),
        ("parts", [], ValidationError, "parts: the list is empty"),
        ("sha256", "AB" * 32, ValidationError, "sha256: .* is not 64 hex digits"),
        ("parts/1/sha256", "ab", ValidationError, r"parts\[1\]\.sha256: 'ab' is not 64"),
        ("format", 2, ValidationError, "format 2; this ortpacks reads 1. Update ortpacks"),
        ("format", True, ValidationError, "format True"),
        ("sha256", ..., SchemaError, "x: sha256: missing"),
        ("parts/0/size", "10", SchemaError, r"x: parts\[0\]\.size: a whole number is wanted"),
        ("url", "http://x", SchemaError, "x: url: unknown key"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(
    path: str, value: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        loads(changed(json_text(PARTS), path, value), "x")


@pytest.mark.parametrize("text", ["", "<html>", b"\xff\xfe", "[" * 100_000])
def test_what_is_no_json_says_so(text: str | bytes) -> None:
    with pytest.raises(ParseError, match="x is not JSON"):
        loads(text, "x")


@pytest.mark.parametrize("text", ["[]", "null", "7"])
def test_json_that_is_no_object_says_so(text: str) -> None:
    with pytest.raises(SchemaError, match="x: the file: an object is wanted"):
        loads(text, "x")
