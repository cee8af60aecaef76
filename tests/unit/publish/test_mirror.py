"""Tests of a mirror's ``releases.json``: its entries, their order, and refusals."""

import json

import pytest

from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.formats.json_values import json_text
from builder.publish.mirror import EMPTY, Mirror, MirrorRelease, entry, loads, merged, mirror_tag
from tests.support.messages import Refused

NOON = "2026-11-21T12:00:00Z"

ONE, TWO = "1" * 64, "2" * 64


def release(tag: str, sha256: str = ONE, published: str = NOON) -> MirrorRelease:
    return entry(tag, published, sha256)


def tags(mirror: Mirror) -> list[str]:
    return [item.tag for item in mirror.releases]


KNOWN = merged(EMPTY, [release("v2"), release("v1")], {"v1", "v2"})


def test_new_releases_go_before_those_that_were_listed() -> None:
    found = [release("v4"), release("v2"), release("v3"), release("v1")]
    assert tags(merged(KNOWN, found, {"v1", "v2", "v3", "v4"})) == ["v4", "v3", "v2", "v1"]


def test_a_release_that_was_replaced_keeps_place_and_time_and_has_its_new_hash() -> None:
    after = merged(KNOWN, [release("v1", TWO, "2027-01-01T00:00:00Z"), release("v2")], {"v1", "v2"})
    assert after.releases == (release("v2"), release("v1", TWO))


def test_a_release_without_its_folder_goes_and_one_without_its_index_stays() -> None:
    assert tags(merged(KNOWN, [], {"v1"})) == ["v1"]


def second(**change: str) -> str:
    """Return the text of the known list with a change of its second entry."""
    value = json.loads(json_text(KNOWN))
    value["releases"][1].update(change)
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[" * 100_000, ParseError),
        ('{"format": 2}', ValidationError),
        ('{"format": 1, "releases": [{}]}', SchemaError),
        (second(tag="../x", index="../x/index.json"), ValidationError),
        (second(tag="a/b", index="a/b/index.json"), ValidationError),
        (second(tag="v2", index="v2/index.json"), ValidationError),
        (second(index="v2/index.json"), ValidationError),
    ],
    ids=["nested", "newer", "no tag", "above", "below", "twice", "another's"],
)
def test_what_is_no_list_or_leads_astray(refused: Refused, text: str, error: type[ConfigError]) -> None:
    with refused(error):
        loads(text, "m")


@pytest.mark.parametrize(
    "tag",
    [
        *("a/b", "latest", "releases.json", "simple"),
        *("..", "", "v 1", "-v1", "v1..2", "v1.lock", "v1.lock/a", "v1/", "v1.", "a~b"),
    ],
)
def test_a_tag_that_names_no_folder_of_a_mirror_or_that_git_refuses_is_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be (mirrored|a tag)"):
        mirror_tag(tag)
