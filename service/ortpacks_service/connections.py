"""Limits on what comes before a request: uvicorn has none for the size and the time of a head."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_KIB, _HEAD_SECONDS = 64, 30
"""The largest size of a request's first line and headers, and the longest time until they have arrived."""

_MOST, _READ = 512, 1 << 16
"""The most connections, and the most bytes that are read from one at once."""

_FULL = b"HTTP/1.1 503 Too many connections\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


_LARGE = f"The request's first line and headers are larger than {MOST_HEAD_KIB} KiB."

_FRAMING = (b"content-length", b"transfer-encoding")
"""Headers that tell where a body ends."""


class _Parser(httptools.HttpRequestParser):
    """A parser that reads a request for another protocol as any other, which HTTP allows.

    For httptools such a request ends with its head. Java's ``HttpClient`` asks for HTTP/2 by default.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def _begin(self) -> None:
        super().__init__(self._connection)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # asyncio gives bytes
        """Read ``data``."""
        while data:
            try:
                super().feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:  # the head of a request for another protocol ended
                self._begin()  # after the last request of a connection, it would read nothing more
                data = self._connection.head_of_the_rest() + data[upgrade.args[0] :]


class Connection(HttpToolsProtocol):
    """uvicorn's reader of requests, which ends a connection whose next request does not come to an end.

    The same holds for the lines between the parts of a body, and for those after it.
    """

    _unfinished = 0
    """Bytes since the last head, part of a body, or end of a request."""
    _head = 0
    """Bytes of the first line and the headers of the request that is read."""
    _advanced = False
    """Whether the bytes that were received last have finished one of these."""
    _deadline: asyncio.TimerHandle | None = None
    _hidden = False
    """Whether a head of ``head_of_the_rest`` is read."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """See ``HttpToolsProtocol``."""
        super().__init__(*given, **named)
        self.parser = _Parser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait()
        if hasattr(transport, "max_size"):  # asyncio's own, which reads 256 KiB
            transport.max_size = _READ
        if len(self.connections) > _MOST:
            self.transport.write(_FULL)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read ``data``, and refuse a head that is too large."""
        self._advanced = False
        super().data_received(data)
        self._unfinished = 0 if self._advanced else self._unfinished + len(data)
        if self._advanced:
            self._stop_waiting()
        elif self._deadline is None and getattr(self.cycle, "response_complete", True):
            self._wait()
        if self._unfinished > MOST_HEAD_KIB << 10 and not self.transport.is_closing():
            self.send_400_response(_LARGE)

    def head_of_the_rest(self) -> bytes:
        """Return a head for the body of a request whose own head has been read. Nobody sees it."""
        self._hidden = True
        framing = [name + b": " + value + b"\r\n" for name, value in self.headers if name in _FRAMING]
        self.headers = []  # the request keeps its own
        return b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n"

    def on_url(self, url: bytes) -> None:
        """See ``HttpToolsProtocol``."""
        self._require_small_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See ``HttpToolsProtocol``."""
        self._require_small_head(len(name) + len(value) + 4)
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """See ``HttpToolsProtocol``, which does not know why the parser ended."""
        super().send_400_response(_LARGE if self._head > MOST_HEAD_KIB << 10 else msg)

    def _require_small_head(self, more: int) -> None:
        """Count bytes of a head; the parser turns the error into a 400."""
        self._head += more
        if self._head > MOST_HEAD_KIB << 10:
            raise ValueError

    def on_message_begin(self) -> None:
        """See ``HttpToolsProtocol``."""
        self._head = 0
        if not self._hidden:
            super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See ``HttpToolsProtocol``."""
        self._advanced = True
        if not self._hidden:
            super().on_headers_complete()
        self._hidden = False

    def on_body(self, body: bytes) -> None:
        """See ``HttpToolsProtocol``."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See ``HttpToolsProtocol``; a request for another protocol ends after its hidden head."""
        self._advanced = True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
