"""The console: groups with ✓ and seconds, progress, GitHub's log groups and step summary."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO

from tqdm import tqdm

from builder.formats.text import commandless, elided, printable, redacted_message, shown

QUIET = "ORTPACKS_QUIET"
"""The variable that ``./run --quiet`` sets."""

_LOCK = threading.Lock()
_MB = 1_000_000
_SECONDS_A_LINE = 60
"""Seconds between two lines of a progress without a terminal."""
_LIVE = "{desc} {percentage:3.0f}%{postfix} |{bar}|"
"""Format of a live progress line. The bar comes last, because a narrow terminal cuts off the line's end."""
_BYTES = "{desc} {percentage:3.0f}% {remaining} left, {n_fmt}/{total_fmt}, {rate_fmt}"
_NARROW, _NUMBERS = 80, 42
"""Columns that every terminal has, and those that the longest numbers of ``_BYTES`` take."""


class Reporter(Protocol):
    """A receiver of progress and results. Library code never prints."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """Report a group of work: ``title`` when the block begins, a mark and the seconds when it ends.

        The mark is ✓, or ✗ when the block raises.
        """

    def say(self, line: str) -> None:
        """Report one line of result or explanation."""

    def warn(self, line: str) -> None:
        """Report one line that the user should act on."""

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Report how many of ``total`` bytes are done, during the block.

        The yielded function takes the number of bytes done since its last call. Without a terminal, a line is
        written at most once a minute.
        """

    def live(self, title: str) -> AbstractContextManager[Callable[[float, str], None]]:
        """Report the progress of another program, during the block.

        The yielded function takes the share done (0 to 1) and a text. On a terminal, each call replaces the
        same line; without a terminal, a line is written at most once a minute.
        """


class _Bar(tqdm):  # type: ignore[type-arg] # generic in its stubs alone
    """A progress bar that leaves the cursor at the line's start, so that output overwrites a ``^C``."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """See ``tqdm.display``."""
        super().display(msg, pos)
        self.fp.write("\r")
        self.fp.flush()


_bar = partial(_Bar, leave=False, dynamic_ncols=True)


class Console:
    """A writer to one stream; implements ``Reporter``. Prefixed consoles share a stream."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        stream: TextIO | None = None,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to ``stream``, else stdout; ``prefix`` starts each line when variants are built at once.

        With ``ORTPACKS_QUIET`` in ``env`` only warnings and what ``show`` takes are written.
        """
        self._env = env
        self._stream = stream or sys.stdout
        self._prefix = prefix
        self._clock = clock
        self._github = env.get("GITHUB_ACTIONS") == "true"
        self._quiet = bool(env.get(QUIET))
        self._colour = self._stream.isatty() and not env.get("NO_COLOR")

    def prefixed(self, name: str) -> Console:
        """Return a console on the same stream whose lines start with a variant's ``name``."""
        return Console(env=self._env, stream=self._stream, prefix=f"{name:<8} ", clock=self._clock)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """See ``Reporter.step``."""
        if self._quiet:
            yield
            return
        grouped = self._github and not self._prefix
        title = printable(title)
        if grouped:
            self._put(f"::group::{title}\n")
        else:
            self._write(self._bold(f"• {title}"))
        started = self._clock()
        mark = "✗"
        try:
            yield
            mark = "✓"
        finally:
            if grouped:
                self._put("::endgroup::\n")
            self._write(f"{mark} {title} {self._clock() - started:.1f} s")

    def say(self, line: str) -> None:
        """See ``Reporter.say``."""
        if not self._quiet:
            self._write(f"  {printable(redacted_message(line))}")

    def warn(self, line: str) -> None:
        """See ``Reporter.warn``."""
        line = shown(redacted_message(line))
        if self._github:
            self._put(f"::warning::{_escaped(self._prefix + line)}\n")
        else:
            self._write(f"  ! {line}")

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """See ``Reporter.progress``."""
        if self._quiet:
            yield lambda *_: None
            return
        if self._stream.isatty():
            desc = elided(f"{self._prefix}  {printable(title)}", _NARROW - _NUMBERS)
            form = {"unit": "B", "unit_scale": True, "bar_format": _BYTES if total else None}
            with _bar(total=total, desc=desc, file=self._stream, **form) as bar:

                def advance(more: int) -> None:
                    bar.update(more)

                yield advance
            return
        lines, done = _Lines(self.say, self._clock), 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            lines.tell(lambda seconds: _bytes_line(title, done, total, seconds))

        yield count

    @contextmanager
    def live(self, title: str) -> Iterator[Callable[[float, str], None]]:
        """See ``Reporter.live``."""
        if self._quiet:
            yield lambda *_: None
            return
        if not self._stream.isatty():
            lines = _Lines(self.say, self._clock)
            yield lambda _, words: lines.tell(lambda _: words)
            return
        desc = f"{self._prefix}  {printable(title)}"
        with _bar(total=1, desc=desc, bar_format=_LIVE, file=self._stream) as bar:

            def show(share: float, words: str) -> None:
                bar.n = share
                bar.set_postfix_str(words)

            yield show

    def show(self, text: str) -> None:
        """Write text: a table, JSON, another program's line. Only commands to GitHub's runner are escaped."""
        self._write(text)

    def summary(self, markdown: str) -> None:
        """Append ``markdown`` to GitHub's step summary, if there is one."""
        target = self._env.get("GITHUB_STEP_SUMMARY")
        if target:
            with Path(target).open("a", encoding="utf-8") as file:
                file.write(markdown + "\n")

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text

    def _write(self, line: str) -> None:
        self._put(commandless("".join(f"{self._prefix}{part}\n" for part in line.split("\n"))))

    def _put(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        with _LOCK, tqdm.external_write_mode(file=self._stream):  # progress bars are redrawn below the text
            self._stream.write(text.encode(encoding, errors="replace").decode(encoding))
            self._stream.flush()


class _Lines:
    """The progress without a terminal: at most one line a minute, the first after a minute."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._began = self._said_at = clock()

    def tell(self, line: Callable[[float], str]) -> None:
        """Say a line, unless the last one is less than a minute old.

        ``line`` makes the text from the seconds since the progress began.
        """
        now = self._clock()
        if now - self._said_at >= _SECONDS_A_LINE:
            self._said_at = now
            self._say(line(now - self._began))


def _bytes_line(title: str, done: int, total: int, seconds: float) -> str:
    rate = done / seconds
    left = f", {(total - done) / rate:,.0f} s left" if total and rate else ""
    share = f"{done / total:.0%}, " if total else ""
    return f"{title}  {share}{done / _MB:,.0f} MB, {rate / _MB:,.1f} MB/s{left}"


def _escaped(text: str) -> str:
    """Return the text escaped for a GitHub command, which a line break ends and in which ``%`` escapes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
