"""Tests of ./run variant add."""

from __future__ import annotations

from tests.support.factories.project_copy import Place

ADD = ("variant", "add", "tiny", "--base", "assembled", "--origin", "source", "--offline")


def test_a_variant_is_planned_shown_and_then_written(place: Place) -> None:
    path = place.folder / "variants.yaml"
    before = path.read_text()
    done = place.run(*ADD, "--sm", "75,86,89,120")
    assert done.returncode == 0, done.stderr
    for line in (
        "  runs     natively on Turing (7.5), Ampere (8.6), Ada (8.9) and Blackwell (12.0, 12.1)\n",
        "  time     about ",
        "  room     ",
        "  variants.yaml has tiny now. ",
    ):
        assert line in done.stdout
    assert path.read_text() != before
    assert place.run("plan", "--variant", "tiny", *ADD[3:]).returncode == 0


def test_a_file_of_windows_line_ends_keeps_them(place: Place) -> None:
    path = place.folder / "variants.yaml"
    before = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(before)
    assert place.run(*ADD, "--sm", "75").returncode == 0
    entry = b"  tiny:\r\n    sm: [75]\r\n    generations: [Turing]\r\n"
    head, found, tail = path.read_bytes().partition(entry)
    assert found
    assert head + tail == before


def test_a_link_to_the_file_stays_one(place: Place) -> None:
    path, elsewhere = place.folder / "variants.yaml", place.folder / "elsewhere.yaml"
    path.rename(elsewhere)
    path.symlink_to(elsewhere.name)
    assert place.run(*ADD, "--sm", "75").returncode == 0
    assert path.is_symlink()
    assert "  tiny:\n" in elsewhere.read_text()


def test_a_file_of_another_encoding_is_told(place: Place) -> None:
    path = place.folder / "variants.yaml"
    path.write_bytes(path.read_bytes() + "# f\u00fcr".encode("latin-1"))
    assert "variants.yaml cannot be read: 'utf-8' codec" in place.fails(2, *ADD, "--sm", "75")
