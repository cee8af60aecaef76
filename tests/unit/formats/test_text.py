"""Tests of texts for messages: lists and names of unknown origin."""

from __future__ import annotations

import json

import pytest

from builder.formats.text import abridged, commandless, listed, printable, shown
from tests.support.runner_commands import NAMES, commands


def test_lists_read_as_people_write_them() -> None:
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert [listed(list("abc"), most) for most in (2, 3)] == ["a, b and 1 more", "a, b and c"]
    assert [abridged(list("abc"), most) for most in (1, 3)] == ["a and 2 more", "a, b, c"]
    assert listed([str(number) for number in range(1002)], 1) == "0 and 1,001 more"
    assert (listed([]), abridged([], 3)) == ("", "")


def test_names_cannot_write_to_the_terminal() -> None:
    assert printable("a\x1b[2J\nb\u202e\udcff") == r"a\x1b[2J\nb\u202e\udcff"
    assert printable("libé x.so") == "libé x.so"


@pytest.mark.parametrize("name", NAMES)
def test_no_output_is_a_command_to_githubs_runner(name: str) -> None:
    for text in (name, f"\n{name}", f"a table\n\t {name}\n", f"{name}\n{name}"):
        assert commands(shown(text)) == commands(commandless(printable(text))) == []


def test_what_is_no_command_and_json_stay_as_they_are() -> None:
    for text in ("a::b(c::d)", "x: y", "## heading", "#[x]", " : :"):
        assert commandless(text) == text
    document = {"##[error]": ["::error::x", "##[[", "\\##["]}
    assert json.loads(commandless(json.dumps(document, indent=2))) == document
