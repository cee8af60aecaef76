"""Limits on what comes before a request: uvicorn has none for the size and the time of a head."""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_KIB, _HEAD_SECONDS = 64, 30
"""The largest size of a request's first line and headers, and the longest time until they have arrived."""


class Connection(HttpToolsProtocol):
    """uvicorn's reader of requests, which ends a connection whose next request does not come to an end.

    The same holds for the lines between the parts of a body, and for those after it.
    """

    _unfinished = 0
    """Bytes since the last head, part of a body, or end of a request."""
    _advanced = False
    """Whether the bytes that were received last have finished one of these."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait()

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
            self.send_400_response(
                f"The request's first line and headers are larger than {MOST_HEAD_KIB} KiB."
            )

    def on_headers_complete(self) -> None:
        """See ``HttpToolsProtocol``."""
        self._advanced = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See ``HttpToolsProtocol``."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See ``HttpToolsProtocol``."""
        self._advanced = True
        super().on_message_complete()

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
