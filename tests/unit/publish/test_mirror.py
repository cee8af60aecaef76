"""Tests of a mirror's ``releases.json``: its entries, their order, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.formats.json_values import json_text
from builder.publish.mirror import (
    EMPTY,
    Mirror,
    MirrorRelease,
    entry,
    loads,
    merged,
    mirror_tag,
    tag_in,
)
from tests.support.messages import Refused
from tests.support.schemas import schema

NOON = "2026-11-21T12:00:00Z"

ONE, TWO = "1" * 64, "2" * 64


def release(tag: str, sha256: str = ONE, published: str = NOON) -> MirrorRelease:
    return entry(tag, published, sha256)


def tags(mirror: Mirror) -> list[str]:
    return [item.tag for item in mirror.releases]


def test_the_first_release_is_listed_with_the_path_of_its_index() -> None:
    found = merged(EMPTY, [release("v1")], {"v1"})
    assert json.loads(json_text(found)) == {
        "format": 1,
        "releases": [{"tag": "v1", "published": NOON, "index": "v1/index.json", "sha256": ONE}],
    }


def test_new_releases_go_before_those_that_were_listed() -> None:
    known = merged(EMPTY, [release("v2"), release("v1")], {"v1", "v2"})
    found = [release("v4"), release("v2"), release("v3"), release("v1")]
    assert tags(merged(known, found, {"v1", "v2", "v3", "v4"})) == ["v4", "v3", "v2", "v1"]


def test_a_release_that_was_replaced_keeps_place_and_time_and_has_its_new_hash() -> None:
    known = merged(EMPTY, [release("v2"), release("v1")], {"v1", "v2"})
    after = merged(known, [release("v1", TWO, "2027-01-01T00:00:00Z"), release("v2")], {"v1", "v2"})
    assert after.releases == (release("v2"), release("v1", TWO))


def test_a_release_without_its_folder_goes_and_one_without_its_index_stays() -> None:
    known = merged(EMPTY, [release("v2"), release("v1")], {"v1", "v2"})
    assert tags(merged(known, [], {"v1"})) == ["v1"]


def test_what_is_written_is_read_back_and_fits_its_schema(root: Path) -> None:
    mirror = merged(EMPTY, [release("gpu-libs-v1.23.2"), release("v1+x_y")], set())
    assert loads(json_text(mirror), "releases.json") == mirror
    schema("mirror").validate(json.loads(json_text(mirror)))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", ParseError),
        ("[" * 100_000, ParseError),
        ("[]", SchemaError),
        ("{}", SchemaError),
        ('{"format": 2}', ValidationError),
        ('{"format": true}', ValidationError),
        ('{"format": 1, "releases": [{}]}', SchemaError),
    ],
    ids=["half", "nested", "list", "empty", "newer", "true", "no tag"],
)
def test_what_is_no_list_is_refused(refused: Refused, text: str, error: type[ConfigError]) -> None:
    with refused(error):
        loads(text, "m")


@pytest.mark.parametrize(
    "change",
    [
        {"tag": "../x", "index": "../x/index.json"},
        {"tag": "a/b", "index": "a/b/index.json"},
        {"tag": "v1", "index": "v1/index.json"},
        {"index": "v1/index.json"},
    ],
    ids=["above", "below", "twice", "another's"],
)
def test_a_list_that_leads_astray_is_refused(refused: Refused, change: dict[str, str]) -> None:
    value = json.loads(json_text(merged(EMPTY, [release("v1"), release("v2")], set())))
    value["releases"][1].update(change)
    with refused(ValidationError):
        loads(json.dumps(value), "m")


@pytest.mark.parametrize("tag", ["gpu-libs-v1.23.2", "v1", "latest-1", "1+a_b"])
def test_a_plain_tag_names_a_folder(tag: str) -> None:
    assert mirror_tag(tag) == tag


@pytest.mark.parametrize("tag", ["a/b", "latest", "releases.json", "..", ".drafts", "", "v1.lock", "a b"])
def test_a_tag_that_names_no_folder_of_a_mirror_is_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be (mirrored|a tag)"):
        mirror_tag(tag)


@pytest.mark.parametrize(
    ("index", "tag"),
    [
        (b'{"format": 2, "tag": "v1", "packages": []}', "v1"),
        (b'{"format": 99, "tag": "v1", "packages": {}, "more": 1}', "v1"),
        (b'{"tag": "docs", "pages": []}', None),
        (b'{"tag": 1, "packages": []}', None),
        (b"[]", None),
        (b"<html>", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_an_index_of_any_format_names_its_release(index: bytes, tag: str | None) -> None:
    assert tag_in(index) == tag
