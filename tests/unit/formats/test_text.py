"""Tests of texts for messages: lists, names of unknown origin, addresses, and which of those get a token."""

import json
import time

import pytest

from builder.formats.text import (
    abridged,
    commandless,
    listed,
    may_carry_a_token,
    printable,
    redacted,
    redacted_message,
    shown,
    wrapped,
)
from tests.support.messages import Told
from tests.support.runner_commands import NAMES, commands
from tests.support.tables import table


def test_lists_read_as_people_write_them() -> None:
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert [listed(list("abc"), most) for most in (2, 3)] == ["a, b and 1 more", "a, b and c"]
    assert [abridged(list("abc"), most) for most in (1, 3)] == ["a and 2 more", "a, b, c"]
    assert listed([str(number) for number in range(1002)], 1) == "0 and 1,001 more"
    assert (listed([]), abridged([], 3)) == ("", "")


def test_lines_end_between_words_and_outside_of_commands() -> None:
    text = "short\n  do: run `docker run --gpus all` again"
    assert wrapped(text, 24) == "short\n  do: run\n    `docker run --gpus all`\n    again"
    assert wrapped(text, 80) == text
    assert wrapped("do: add --group-add there", 14) == "do: add\n    --group-add\n    there", (
        "a flag is one word"
    )


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


@pytest.mark.parametrize("text", [text for (text,) in table("formats/addresses.txt")])
def test_logins_and_signatures_are_taken_out_and_nothing_else(text: str, told: Told) -> None:
    """A message keeps its advice too."""
    told(redacted(text))
    told(redacted_message(text))


@pytest.mark.parametrize("part", ["?sig", "sig", "a1", "://", "ab:/", "u:p@"])
def test_hostile_addresses_take_no_longer_than_their_bytes(part: str) -> None:
    """Names of a query without a value were cubic: 6 kB took 4 s, a redirect's 64 kB more than an hour."""
    text, start = "http://h/?" + part * 10_000, time.process_time()
    assert redacted_message(text)
    assert redacted(text)
    assert time.process_time() - start < 1


def test_plain_http_is_for_this_machine() -> None:
    for url in ("https://git.example/x", "http://127.0.0.1:8080/x", "http://localhost"):
        assert may_carry_a_token(url)
    others = (
        "git.example/x",
        "localhost.git.example/x",
        "127.0.0.1:x@git.example/",
        "127.0.0.1.git.example/",
    )
    assert not any(may_carry_a_token(f"http://{other}") for other in others)
