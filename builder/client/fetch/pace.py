"""Gives up on a server that sends next to nothing: a time limit on each read alone never would."""

from __future__ import annotations

import io
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from typing import Callable, Optional, Protocol

WINDOW_SECONDS = 30.0

LEAST_BYTES = 30 * 1024
"""In that time: 1 KiB a second. A package would take weeks."""

Clock = Callable[[], float]
"""Seconds, of any origin."""


class TooSlowError(TimeoutError):
    """Fewer than ``LEAST_BYTES`` came within ``WINDOW_SECONDS`` of waiting."""


class _Raw(Protocol):
    """A socket's bytes as they come."""

    def readinto(self, buffer: memoryview, /) -> Optional[int]:
        """How many came; waits for the first of them."""

    def close(self) -> None:
        """Give the socket back."""


class Paced(io.RawIOBase):
    """``raw``, read as before; raises ``TooSlowError``.

    Only waiting counts, so that whoever reads may take time. The first bytes, which a server may have to look
    for, have the socket's own limit.
    """

    def __init__(self, raw: _Raw, clock: Clock) -> None:
        self._raw = raw
        self._clock = clock
        self._begun = False
        self._waited, self._came = 0.0, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview, /) -> Optional[int]:  # type: ignore[override]  # no other buffer comes
        """As ``io.RawIOBase`` has it."""
        begin = self._clock()
        count = self._raw.readinto(buffer)
        if self._begun:
            self._count(count or 0, self._clock() - begin)
        self._begun = True
        return count

    def close(self) -> None:
        """Close what is underneath too."""
        if not self.closed:
            self._raw.close()
        super().close()

    def _count(self, came: int, seconds: float) -> None:
        self._came += came
        self._waited += seconds
        if self._waited < WINDOW_SECONDS:
            return
        if self._came < LEAST_BYTES:
            raise TooSlowError(f"only {self._came} bytes in {self._waited:.0f} s")
        self._waited, self._came = 0.0, 0


class PacedResponse(HTTPResponse):
    """An answer whose headers and body are ``Paced``."""

    def __init__(self, clock: Clock, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as http.client calls it
        self.fp = io.BufferedReader(Paced(self.fp.detach(), clock))


def paced(kind: Callable[..., HTTPConnection], clock: Clock) -> Callable[..., HTTPConnection]:
    """``kind`` of connection, with ``PacedResponse`` for its answers."""

    def connect(*arguments: object, **named: object) -> HTTPConnection:
        connection = kind(*arguments, **named)
        connection.response_class = partial(PacedResponse, clock)  # type: ignore[assignment]  # it is called
        return connection

    return connect
