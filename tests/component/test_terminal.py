"""Tests of live progress on a real terminal of known width, by what its screen shows, and without one."""

import fcntl
import os
import re
import struct
import termios
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from builder.console import Console

WORDS = "171/550 units, about 12 min left, 5.1 GiB, 40 from the cache"


class Screen:
    """The screen of a terminal after the bytes it received, for the control sequences of the console."""

    def __init__(self, columns: int) -> None:
        self.columns, self.row, self.column = columns, 0, 0
        self.rows = defaultdict[int, list[str]](lambda: [" "] * columns)

    def take(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[A|[^\x1b]", re.sub(r"\x1b\[\d*m", "", text)):
            if piece == "\x1b[A":
                self.row -= 1
            elif piece == "\r":
                self.column = 0
            elif piece == "\n":
                self.row += 1
            else:
                if self.column == self.columns:
                    self.row, self.column = self.row + 1, 0
                self.rows[self.row][self.column] = piece
                self.column += 1

    def lines(self) -> list[str]:
        lines = ["".join(self.rows[number]).rstrip() for number in range(max(self.rows) + 1)]
        return "\n".join(lines).rstrip("\n").split("\n")


class Terminal:
    """A pseudoterminal and a console that writes to it."""

    def __init__(self, columns: int) -> None:
        self._reads, writes = os.openpty()
        fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(writes, "w", encoding="utf-8")
        self.console = Console(env={}, stream=self.stream, clock=iter(range(1000)).__next__)
        self.screen = Screen(columns)

    def shown(self) -> list[str]:
        """Return the screen's lines after all written bytes were received."""
        os.set_blocking(self._reads, False)
        try:
            while came := os.read(self._reads, 1 << 16).decode().replace("\r\n", "\n\r"):
                self.screen.take(came)
        except BlockingIOError:
            pass
        return self.screen.lines()

    def close(self) -> None:
        self.stream.close()
        os.close(self._reads)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with closing(Terminal(getattr(request, "param", 100))) as made:
        yield made


def test_a_live_progress_is_one_line_that_goes_when_it_ends(terminal: Terminal) -> None:
    with terminal.console.step("compile legacy"):
        with terminal.console.live("compile") as show:
            show(0.1, "55/550 units, about 30 min left, 2.0 GiB, 0 from the cache")
            show(0.31, WORDS)
            title, line = terminal.shown()
            assert line.startswith(f"  compile  31%, {WORDS} |█")
            assert len(line) <= 100
        assert terminal.shown() == [title]
    assert terminal.shown() == [title, "✓ compile legacy 1.0 s"]


def test_variants_have_a_line_each_below_all_others(terminal: Terminal) -> None:
    names = ("legacy", "modern", "latest")
    consoles = [terminal.console.prefixed(name) for name in names]
    with ExitStack() as stack:
        first, *others = (stack.enter_context(one.live("compile")) for one in consoles)
        for share, show in zip((0.5, 0.75), others, strict=True):
            show(share, WORDS)
        first(0.25, WORDS)
        consoles[2].say("1 of the units failed")
        first(0.30, WORDS)
        said, *live = terminal.shown()
        assert said == "latest     1 of the units failed"
        assert [line.partition(" |")[0] for line in live] == [
            f"{name}     compile  {percent}%, {WORDS}"
            for name, percent in zip(names, (30, 50, 75), strict=True)
        ]
        with consoles[1].progress("cudnn.whl", 10) as advance:
            advance(5)
            assert [line.split()[0] for line in terminal.shown()] == ["latest", *names, "modern"]
        assert [line.split()[0] for line in terminal.shown()] == ["latest", *names]
    assert terminal.shown() == [said]


@pytest.mark.parametrize("terminal", [80], indirect=True)
@pytest.mark.parametrize("prefix", ["", "modern"])
def test_a_file_with_a_long_name_leaves_room_for_how_far_and_how_long(
    terminal: Terminal, prefix: str
) -> None:
    shown = terminal.console.prefixed(prefix) if prefix else terminal.console
    with shown.progress("ortpacks-modern-1.26.0-cuda12.9-thin-linux-x64.tar.zst", 1_615_000_000):
        (line,) = terminal.shown()
    assert re.search(r"  ortpack\S*…\S+tar\.zst   0% \? left, 0\.00/1\.6\dG, \?B/s", line), line


@pytest.mark.parametrize("terminal", [60, 100], indirect=True)
def test_ctrl_c_leaves_no_live_line(terminal: Terminal) -> None:
    """The two widths are one that the line fills and one with space to spare."""

    def compile_until_ctrl_c() -> None:
        with terminal.console.step("compile legacy"), terminal.console.live("compile") as show:
            show(0.31, WORDS)
            assert len(terminal.shown()) == 2
            terminal.screen.take("^C")  # the terminal's own echo
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_until_ctrl_c()
    assert terminal.shown() == ["• compile legacy", "✗ compile legacy 1.0 s"]
