"""Tests of texts for messages: lists and names of unknown origin."""

from __future__ import annotations

from builder.formats.text import abridged, listed, printable


def test_lists_read_as_people_write_them() -> None:
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert [listed(list("abc"), most) for most in (2, 3)] == ["a, b and 1 more", "a, b and c"]
    assert [abridged(list("abc"), most) for most in (1, 3)] == ["a and 2 more", "a, b, c"]
    assert listed([str(number) for number in range(1002)], 1) == "0 and 1,001 more"
    assert (listed([]), abridged([], 3)) == ("", "")


def test_names_cannot_write_to_the_terminal() -> None:
    assert printable("a\x1b[2J\nb\u202e\udcff") == r"a\x1b[2J\nb\u202e\udcff"
    assert printable("libé x.so") == "libé x.so"
