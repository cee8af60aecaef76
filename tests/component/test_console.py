"""Tests of the console's output: groups, marks, prefixes, colour and GitHub's workflow commands."""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from builder.console import QUIET, Console
from tests.support.messages import Told

GITHUB = {"GITHUB_ACTIONS": "true"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Env = Mapping[str, str]


def console(env: Env | None = None, stream: io.StringIO | None = None) -> tuple[Console, io.StringIO]:
    """Return a console whose steps take 1.5 s each, and the stream that it writes to."""
    written = stream or io.StringIO()
    return Console(env=env or {}, stream=written, clock=count(0.0, 1.5).__next__), written


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_a_quiet_console_writes_warnings_and_reports_alone(stream: io.StringIO) -> None:
    shown, written = console({QUIET: "1"}, stream)
    with shown.step("plan"), shown.progress("fetch", 10) as more, shown.live("compile") as moved:
        more(10)
        moved(0.5, "1 of 2 units")
        shown.say("base")
        shown.warn("no pin")
        shown.show("a report")
    assert written.getvalue() == "  ! no pin\na report\n"


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


@pytest.mark.parametrize("prefix", ["", "legacy"], ids=["alone", "beside"])
@pytest.mark.parametrize("env", [{}, GITHUB], ids=["here", "github"])
def test_what_is_written(told: Told, env: Env, prefix: str) -> None:
    """On GitHub only the console itself writes commands. No line has a login or a signature.

    Groups of variants side by side would mix, so there are none.
    """
    shown, written = console(env)
    shown = shown.prefixed(prefix) if prefix else shown

    def work() -> None:
        with shown.step("plan"), shown.step("read a\n::error::name"):
            shown.say("base     assembled\n::error::x")
            shown.warn("100% full:\n::error::x")
            shown.show("four\n::error::x\n##[error]x")
            shown.say("from https://user:s3cret@host/x?sig=s3cret")
            shown.warn("https://user:s3cret@host/x?sig=s3cret fails")
            with shown.step("compile"), shown.live("compile") as show:
                for done in range(90):  # each takes 1.5 s
                    show(done / 90, f"{done}/90 units")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    told(written.getvalue())


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
