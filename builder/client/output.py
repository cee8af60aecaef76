"""The two streams that the client writes to: answers to stdout, everything else to stderr."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Optional, TextIO, Tuple, Union

from builder.formats.text import shown

_ESCAPES = "ortpacks"
"""The name that ``_escape`` is registered under."""


class Output:
    """Standard output and standard error, either of which may be closed or full."""

    def __init__(self, stdout: Optional[TextIO], stderr: Optional[TextIO]) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._moving = False
        """Whether the last line on stderr is one of progress, not at its end yet."""
        codecs.register_error(_ESCAPES, _escape)
        for stream in (stdout, stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A shell reads a path from stdout: it has the file system's encoding, whatever the locale is.
                encoding = sys.getfilesystemencoding() if os.name == "posix" else stream.encoding
                stream.reconfigure(encoding=encoding, errors=_ESCAPES)

    def answer(self, text: str) -> None:
        """Write to stdout. Raises ``OSError``, and then drops what Python would write again at its end."""
        if self._stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        _write(self._stdout, f"{text}\n")

    def say(self, text: str) -> None:
        """Write lines to stderr, control characters as escapes. Where that cannot be, nobody is told."""
        self.write(f"{shown(text)}\n")

    def move(self, line: str) -> None:
        """Write a line of progress to stderr, over the one before; the last one ends with a line break."""
        moving, self._moving = not line.endswith("\n"), False
        self.write(line)
        self._moving = moving

    def write(self, text: str) -> None:
        """Write to stderr as it is, below a line of progress."""
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
    """The byte of a file name that is no text as it is, else an escape for what the encoding lacks."""
    if isinstance(error, UnicodeEncodeError):
        error.end = error.start + 1
    with suppress(UnicodeError):
        return codecs.lookup_error("surrogateescape")(error)
    return codecs.lookup_error("backslashreplace")(error)
