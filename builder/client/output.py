"""The client writes answers to stdout and everything else to stderr."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Optional, TextIO, Tuple, Union

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
