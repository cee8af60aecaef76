"""Tests of live progress on a real terminal of known width, by what its screen shows, and without one."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from builder.console import Console

WORDS = "171/550 units, about 12 min left, 5.1 GiB, 40 from the cache"


@dataclass
class Screen:
    """The screen of a terminal after the bytes it received; it knows the control sequences that
    the console uses."""

    columns: int
    rows: list[list[str]] = field(default_factory=list)
    at: tuple[int, int] = (0, 0)

    def take(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[A|[^\x1b]", re.sub(r"\x1b\[\d*m", "", text)):
            row, column = self.at
            if piece == "\x1b[A":
                row -= 1
            elif piece == "\r":
                column = 0
            elif piece == "\n":
                row += 1
            else:
                if column == self.columns:
                    row, column = row + 1, 0
                self._row(row)[column] = piece
                column += 1
            self._row(row)
            self.at = row, column

    def _row(self, number: int) -> list[str]:
        self.rows += [[" "] * self.columns for _ in range(number + 1 - len(self.rows))]
        return self.rows[number]

    def lines(self) -> list[str]:
        lines = ["".join(row).rstrip() for row in self.rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Terminal:
    """A pseudoterminal and a console that writes to it."""

    def __init__(self, columns: int, env: Mapping[str, str]) -> None:
        self._reads, writes = os.openpty()
        fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(writes, "w", encoding="utf-8")
        self.console = Console(env=env, stream=self.stream, clock=iter(range(1000)).__next__)
        self.screen = Screen(columns)
        self.written = ""

    def shown(self) -> list[str]:
        """Return the screen's lines after all written bytes were received."""
        os.set_blocking(self._reads, False)
        try:
            while came := os.read(self._reads, 1 << 16).decode().replace("\r\n", "\n\r"):
                self.written += came
                self.screen.take(came)
        except BlockingIOError:
            pass
        return self.screen.lines()

    def close(self) -> None:
        self.stream.close()
        os.close(self._reads)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    with ExitStack() as stack:

        def make(columns: int = 100, env: Mapping[str, str] | None = None) -> Terminal:
            made = Terminal(columns, env or {})
            stack.callback(made.close)
            return made

        yield make


def test_a_live_progress_is_one_line_that_goes_when_it_ends(terminal: Callable[..., Terminal]) -> None:
    tty = terminal()
    with tty.console.step("compile legacy"):
        with tty.console.live("compile") as show:
            show(0.1, "55/550 units, about 30 min left, 2.0 GiB, 0 from the cache")
            show(0.31, WORDS)
            title, line = tty.shown()
            assert line.startswith(f"  compile  31%, {WORDS} |█")
            assert len(line) <= 100
        assert tty.shown() == [title]
    assert tty.shown() == [title, "✓ compile legacy 1.0 s"]


def test_variants_have_a_line_each_below_all_others(terminal: Callable[..., Terminal]) -> None:
    tty = terminal()
    names = ("legacy", "modern", "latest")
    consoles = [tty.console.prefixed(name) for name in names]
    with ExitStack() as stack:
        first, *others = (stack.enter_context(one.live("compile")) for one in consoles)
        for share, show in zip((0.5, 0.75), others, strict=True):
            show(share, WORDS)
        first(0.25, WORDS)
        consoles[2].say("1 of the units failed")
        first(0.30, WORDS)
        said, *live = tty.shown()
        assert said == "latest     1 of the units failed"
        assert [line.partition(" |")[0] for line in live] == [
            f"{name}     compile  {percent}%, {WORDS}"
            for name, percent in zip(names, (30, 50, 75), strict=True)
        ]
        with consoles[1].progress("cudnn.whl", 10) as advance:
            advance(5)
            assert [line.split()[0] for line in tty.shown()] == ["latest", *names, "modern"]
        assert [line.split()[0] for line in tty.shown()] == ["latest", *names]
    assert tty.shown() == [said]


def test_a_narrow_terminal_loses_the_bar_and_then_the_last_words(terminal: Callable[..., Terminal]) -> None:
    tty = terminal(columns=50)
    with tty.console.live("compile") as show:
        show(0.31, WORDS)
        show(0.32, WORDS)
        assert tty.shown() == [f"  compile  32%, {WORDS}"[:50].rstrip()]


@pytest.mark.parametrize("columns", [60, 100])
def test_ctrl_c_leaves_no_live_line(terminal: Callable[..., Terminal], columns: int) -> None:
    """The two widths are one that the line fills and one with space to spare."""
    tty = terminal(columns)

    def compile_until_ctrl_c() -> None:
        with tty.console.step("compile legacy"), tty.console.live("compile") as show:
            show(0.31, WORDS)
            assert len(tty.shown()) == 2
            tty.screen.take("^C")  # the terminal's own echo
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_until_ctrl_c()
    assert tty.shown() == ["• compile legacy", "✗ compile legacy 1.0 s"]


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {}], ids=["no color", "color"])
def test_a_live_line_has_no_colour_of_its_own(terminal: Callable[..., Terminal], env: dict[str, str]) -> None:
    tty = terminal(env=env)
    with tty.console.step("compile"), tty.console.prefixed("legacy").live("compile") as show:
        show(0.31, WORDS)
    tty.shown()
    colours = re.findall(r"\x1b\[[\d;]*m", tty.written)
    assert colours == ([] if env else ["\x1b[1m", "\x1b[0m"])


def test_without_a_terminal_it_is_a_line_a_minute_for_each_variant() -> None:
    """Each variant reports every ten seconds for three minutes, which gives three lines."""
    stream, now = io.StringIO(), [0.0]
    console = Console(env={}, stream=stream, clock=lambda: now[0])
    with console.prefixed("legacy").live("compile") as one, console.prefixed("modern").live("compile") as two:
        for second in range(0, 185, 10):
            now[0] = second
            one(second / 200, f"{second}/200 units")
            two(second / 400, f"{second}/400 units")
    assert stream.getvalue().splitlines() == [
        f"{name}     {minute * 60}/{total} units"
        for minute in (1, 2, 3)
        for name, total in (("legacy", 200), ("modern", 400))
    ]
