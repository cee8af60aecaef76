"""The client writes answers to stdout, and everything else to stderr: messages, and a download's progress."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Callable, Optional, TextIO, Tuple, Union

from builder.formats.text import redacted_message, shown

_ESCAPES = "ortpacks"
"""The name under which ``_escape`` is registered with ``codecs``."""


class Output:
    """Standard output and standard error, either of which may be closed or full."""

    def __init__(self, stdout: Optional[TextIO], stderr: Optional[TextIO]) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._moving = False
        """Whether the last line on stderr is a progress line without its line break."""
        codecs.register_error(_ESCAPES, _escape)
        for stream in (stdout, stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A shell reads paths from stdout: they need the file system's encoding, not the locale's.
                encoding = sys.getfilesystemencoding() if os.name == "posix" else stream.encoding
                stream.reconfigure(encoding=encoding, errors=_ESCAPES)

    def answer(self, text: str) -> None:
        """Write ``text`` and a line break to stdout. Raises ``OSError``.

        After an error stdout leads to ``/dev/null``: else Python would raise again when it flushes at exit.
        """
        if self._stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        _write(self._stdout, f"{text}\n")

    def say(self, text: str) -> None:
        """Write redacted lines to stderr, control characters as escapes. Errors of writing are ignored."""
        self.write(f"{shown(redacted_message(text))}\n")

    def move(self, line: str) -> None:
        """Write a progress line to stderr over the one before. The last one ends with a line break."""
        moving, self._moving = not line.endswith("\n"), False
        self.write(line)
        self._moving = moving

    def write(self, text: str) -> None:
        """Write ``text`` to stderr unchanged, below a progress line. Errors of writing are ignored."""
        if self._stderr is not None:
            with suppress(OSError):
                _write(self._stderr, f"\n{text}" if self._moving else text)
        self._moving = False


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def _escape(error: UnicodeError) -> Tuple[Union[str, bytes], int]:
    """Return the replacement for a character that the encoding lacks, and the position after it.

    A surrogate from a file name becomes the byte that it stands for, any other character an escape.
    """
    if isinstance(error, UnicodeEncodeError):
        error.end = error.start + 1
    with suppress(UnicodeError):
        return codecs.lookup_error("surrogateescape")(error)
    return codecs.lookup_error("backslashreplace")(error)


EVERY_SECONDS = 0.2
"""The shortest time in seconds between two progress lines."""

SETTLED_SECONDS = 2.0
"""Seconds before which no rate is shown, because it is not yet stable."""


@dataclass
class Meter:
    """A progress line that is written over and over on one line of a terminal."""

    write: Callable[[str], None]
    clock: Callable[[], float]
    """Seconds since any fixed moment."""
    columns: Callable[[], int]
    """The terminal's current width in columns."""
    _begun: float = 0.0
    _first: int = 0
    _written_at: Optional[float] = None
    _total: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Write the line, unless the last one is younger than ``EVERY_SECONDS``."""
        now = self.clock()
        if total != self._total or done < self._first:
            self._begun, self._first, self._written_at, self._total = now, done, None, total
        if done < total and self._written_at is not None and now - self._written_at < EVERY_SECONDS:
            return
        self._written_at = now
        end = "\n" if done == total else ""
        width = max(self.columns() - 1, 1)
        line = progress_line(done, total, done - self._first, now - self._begun)
        self.write(f"\r{line[:width]:<{width}}{end}")


def progress_line(done: int, total: int, fresh: int, seconds: float) -> str:
    """Return the progress line. ``fresh`` of the ``done`` bytes were received within ``seconds``.

    ``total`` is 0 where the server does not say how many bytes there are.
    """
    size = total or done
    line = f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
    if total:
        line = f"{done * 100 // total:3d} % of {line}"
    if seconds < SETTLED_SECONDS or fresh <= 0:
        return line
    rate = fresh / seconds
    left = f", {duration((total - done) / rate)} left" if done < total else f" in {duration(seconds)}"
    return f"{line}, {rate / 2**20:.1f} MiB/s{left}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``8 s``, ``2 min 05 s``, ``1 h 20 min``."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
