"""Tests of the console's output: groups, marks, prefixes, colour and GitHub's workflow commands."""

from __future__ import annotations

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from builder.console import Console
from builder.errors import CommandError

GITHUB = {"GITHUB_ACTIONS": "true"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Env = Mapping[str, str]


def console(env: Env | None = None, stream: io.StringIO | None = None) -> tuple[Console, io.StringIO]:
    """Return a console whose steps take 1.5 s each, and the stream that it writes to."""
    written = stream or io.StringIO()
    return Console(env=env or {}, stream=written, clock=count(0.0, 1.5).__next__), written


def test_a_step_is_its_title_what_happens_and_its_seconds() -> None:
    shown, written = console()
    with shown.step("plan"), shown.step("check"):
        shown.say("base     assembled: asked for")
    lines = ["• plan", "• check", "  base     assembled: asked for", "✓ check 1.5 s", "✓ plan 4.5 s"]
    assert written.getvalue().splitlines() == lines


@pytest.mark.parametrize("env", [{}, GITHUB])
def test_no_line_has_a_login_or_a_signature(env: Mapping[str, str]) -> None:
    shown, written = console(env)
    shown.say("from https://user:s3cret@host/x?sig=s3cret")
    shown.warn("https://user:s3cret@host/x?sig=s3cret fails")
    assert written.getvalue().count("https://…@host/x?sig=…") == 2
    assert "s3cret" not in written.getvalue()


def test_a_step_that_fails_is_marked_and_the_error_goes_on() -> None:
    shown, written = console()
    with pytest.raises(KeyboardInterrupt), shown.step("compile legacy"):
        raise KeyboardInterrupt
    assert written.getvalue() == "• compile legacy\n✗ compile legacy 1.5 s\n"


def test_on_github_a_step_is_a_log_group_with_its_mark_outside() -> None:
    shown, written = console(GITHUB)
    with pytest.raises(CommandError), shown.step("compile legacy"):
        raise CommandError("nvcc exited with 1")
    assert written.getvalue() == "::group::compile legacy\n::endgroup::\n✗ compile legacy 1.5 s\n"


def test_groups_of_variants_side_by_side_would_mix_so_there_are_none() -> None:
    shown, written = console(GITHUB)
    with shown.prefixed("legacy").step("compile"):
        pass
    assert written.getvalue() == "legacy   • compile\nlegacy   ✓ compile 1.5 s\n"


def test_a_prefix_stands_on_every_line() -> None:
    shown, written = console()
    beside = shown.prefixed("modern")
    beside.say("one")
    beside.warn("three")
    beside.show("four\nfive")
    rows = ("modern     one", "modern     ! three", "modern   four", "modern   five")
    assert tuple(written.getvalue().splitlines()) == rows


def test_lines_of_parallel_variants_stay_whole() -> None:
    shown, written = console()

    def talk(name: str) -> None:
        beside = shown.prefixed(name)
        for number in range(200):
            beside.show(f"{name} {number}\n{name}")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(talk, ("legacy", "modern", "latest")))
    lines = written.getvalue().splitlines()
    assert len(lines) == 1200
    assert all(line.split()[0] == line.split()[1] for line in lines)


@pytest.mark.parametrize(
    ("env", "prefix", "line", "written"),
    [
        ({}, "", "disk is nearly full", "  ! disk is nearly full\n"),
        (GITHUB, "", "100% full:\nfree some", "::warning::100%25 full:%0Afree some\n"),
        (GITHUB, "legacy", "disk is nearly full", "::warning::legacy   disk is nearly full\n"),
    ],
)
def test_a_warning_is_marked_and_on_github_a_command(env: Env, prefix: str, line: str, written: str) -> None:
    shown, stream = console(env)
    (shown.prefixed(prefix) if prefix else shown).warn(line)
    assert stream.getvalue() == written


@pytest.mark.parametrize(
    ("env", "stream", "coloured"),
    [
        ({}, Terminal(), True),
        ({"NO_COLOR": "1"}, Terminal(), False),
        ({"NO_COLOR": ""}, Terminal(), True),
        ({}, io.StringIO(), False),
    ],
    ids=["terminal", "no-color", "no-color-empty", "pipe"],
)
def test_colour_is_for_terminals_that_want_it(env: Env, stream: io.StringIO, coloured: bool) -> None:
    shown, written = console(env, stream)
    with shown.step("plan"):
        pass
    assert ("\x1b[1m" in written.getvalue()) is coloured


@pytest.mark.parametrize(
    ("total", "more", "lines"),
    [
        (100_000_000, 1_000_000, ["40%, 40 MB, 0.7 MB/s, 90 s left", "80%, 80 MB, 0.7 MB/s, 30 s left"]),
        (0, 3_000_000, ["120 MB, 2.0 MB/s", "240 MB, 2.0 MB/s"]),
        (10, 0, ["0%, 0 MB, 0.0 MB/s", "0%, 0 MB, 0.0 MB/s"]),
    ],
    ids=["towards-an-end", "towards-an-unknown-end", "standing-still"],
)
def test_a_long_progress_without_a_terminal_is_a_line_a_minute(
    total: int, more: int, lines: list[str]
) -> None:
    shown, written = console()
    with shown.progress("package.tar.zst", total) as advance:
        for _ in range(90):  # each takes 1.5 s
            advance(more)
    assert written.getvalue().splitlines() == [f"  package.tar.zst  {line}" for line in lines]


def test_live_progress_without_a_terminal_is_a_line_a_minute() -> None:
    shown, written = console()
    with shown.live("compile") as show:
        for done in range(90):  # each takes 1.5 s
            show(done / 90, f"{done}/90 units")
    assert written.getvalue().splitlines() == ["  39/90 units", "  79/90 units"]


@pytest.mark.parametrize("kind", ["progress", "live"])
def test_a_name_in_a_progress_cannot_write_to_the_terminal(kind: str) -> None:
    shown, written = console(stream=Terminal())
    name = "a\x1b[2J\rb.zst"
    with shown.progress(name, 8) if kind == "progress" else shown.live(name):
        pass
    assert r"a\x1b[2J\rb.zst" in written.getvalue()
    assert "\x1b[2J" not in written.getvalue()


def test_the_step_summary_grows_on_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console()[0].summary("## legacy")
    assert list(tmp_path.iterdir()) == []
    target = tmp_path / "summary.md"
    shown, written = console({"GITHUB_STEP_SUMMARY": str(target)})
    shown.summary("## legacy ✓")
    shown.summary("| a |")
    assert target.read_text(encoding="utf-8") == "## legacy ✓\n| a |\n"
    assert written.getvalue() == ""


def test_a_stream_that_knows_no_marks_gets_other_signs() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    with Console(env={}, stream=stream, clock=count(0.0, 1.5).__next__).step("plan"):
        pass
    assert raw.getvalue() == b"? plan\n? plan 1.5 s\n"


def test_on_github_only_the_console_itself_writes_commands() -> None:
    shown, written = console(GITHUB)
    with shown.step("read a\n::error::name"):
        shown.say("a\n::error::x")
        shown.warn("b\n::error::x")
        shown.show("::error::x\n##[error]x")
    lines = written.getvalue().splitlines()
    told = [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert [line.split("::")[1] for line in told] == ["group", "warning", "endgroup"]
