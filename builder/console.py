"""The console's output: groups with ✓ and seconds, byte progress, GitHub's log groups and step summary."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

_LOCK = threading.Lock()
_MB = 1_000_000
_SECONDS_A_LINE = 30
"""Seconds between two lines of a progress without a terminal."""


class Console:
    """The writer to one stream; implements ``ports.Reporter``. Prefixed consoles share a stream."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        stream: TextIO | None = None,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``prefix`` starts each line when variants build side by side."""
        self._env = env
        self._stream = stream or sys.stdout
        self._prefix = prefix
        self._clock = clock
        self._github = env.get("GITHUB_ACTIONS") == "true"
        self._colour = self._stream.isatty() and not env.get("NO_COLOR")

    def prefixed(self, name: str) -> Console:
        """A console on the same stream for one of several variants."""
        return Console(env=self._env, stream=self._stream, prefix=f"{name:<8} ", clock=self._clock)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """See ``ports.Reporter.step``."""
        grouped = self._github and not self._prefix
        self._write(f"::group::{title}" if grouped else self._bold(f"• {title}"))
        started = self._clock()
        mark = "✗"
        try:
            yield
            mark = "✓"
        finally:
            if grouped:
                self._write("::endgroup::")
            self._write(f"{mark} {title} {self._clock() - started:.1f} s")

    def say(self, line: str) -> None:
        """See ``ports.Reporter.say``."""
        self._write(f"  {line}")

    def warn(self, line: str) -> None:
        """See ``ports.Reporter.warn``."""
        if self._github:
            self._put(f"::warning::{_escaped(self._prefix + line)}\n")
        else:
            self._write(f"  ! {line}")

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """See ``ports.Reporter.progress``."""
        if not self._stream.isatty() or self._prefix:
            yield _Lines(title, total, self.say, self._clock).advance
            return
        with tqdm(
            total=total,
            desc=f"  {title}",
            unit="B",
            unit_scale=True,
            leave=False,
            dynamic_ncols=True,
            file=self._stream,
        ) as bar:

            def advance(done: int) -> None:
                bar.update(done)

            yield advance

    def show(self, text: str) -> None:
        """Write text unchanged: a table, JSON, another program's line."""
        self._write(text)

    def summary(self, markdown: str) -> None:
        """Append to GitHub's step summary, if there is one."""
        target = self._env.get("GITHUB_STEP_SUMMARY")
        if target:
            with Path(target).open("a", encoding="utf-8") as file:
                file.write(markdown + "\n")

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text

    def _write(self, line: str) -> None:
        self._put("".join(f"{self._prefix}{part}\n" for part in line.split("\n")))

    def _put(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        with _LOCK, tqdm.external_write_mode(file=self._stream):  # above a bar, not through it
            self._stream.write(text.encode(encoding, errors="replace").decode(encoding))
            self._stream.flush()


class _Lines:
    """A progress without a terminal: nothing for half a minute, then a line each half minute."""

    def __init__(
        self, title: str, total: int, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._title, self._total, self._say, self._clock = title, total, say, clock
        self._done = 0
        self._began = self._reported_at = clock()

    def advance(self, done: int) -> None:
        """Count ``done`` more bytes."""
        self._done += done
        now = self._clock()
        if now - self._reported_at >= _SECONDS_A_LINE:
            self._reported_at = now
            self._say(self._line(now - self._began))

    def _line(self, seconds: float) -> str:
        rate = self._done / seconds
        left = f", {(self._total - self._done) / rate:,.0f} s left" if self._total and rate else ""
        share = f"{self._done / self._total:.0%}, " if self._total else ""
        return f"{self._title}  {share}{self._done / _MB:,.0f} MB, {rate / _MB:,.1f} MB/s{left}"


def _escaped(text: str) -> str:
    """The text escaped for a GitHub command, which ends at a line break and reads ``%`` as a code."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
