"""The route ``/vad``, which answers while its audio still arrives."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from functools import partial

import numpy as np
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ortpacks_service.options import DETECTOR
from ortpacks_service.service import Service
from ortpacks_service.speech import Segment, SpeechDetector, WavReader

log = logging.getLogger("ortpacks_service")

PATH = "/vad"
"""The route has no time limit, since its audio may take longer than a request may."""


async def vad(request: Request) -> Response:
    """Answer a WAV file with a line of JSON for each segment of speech, as soon as the segment has ended."""
    service: Service = request.app.state.service
    session = service.models.session(DETECTOR)
    reader, pieces = WavReader(), request.stream()
    samples = np.zeros(0, np.float32)
    async for piece in pieces:  # up to the header, an error can have a status
        samples = reader.samples(piece)
        if reader.begun:
            break
    detector = SpeechDetector(partial(service.runs.run, session), reader.rate)

    async def lines() -> AsyncIterator[bytes]:
        run = service.streams.run
        yield await run(lambda: _lines(detector.feed(samples)))
        async for piece in pieces:
            yield await run(partial(lambda more: _lines(detector.feed(more)), reader.samples(piece)))
        yield await run(lambda: _lines(detector.finish()))

    return _JsonLines(lines())


class _JsonLines(Response):
    """A response of lines of JSON, sent as they are made.

    Starlette's own class would read the request's body while it answers.
    """

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        super().__init__(media_type="application/x-ndjson")
        del self.headers["content-length"]
        self._lines = lines

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for lines in self._lines:
                if lines:
                    await send({"type": "http.response.body", "body": lines, "more_body": True})
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a stream failed", extra={"path": PATH})
            failed = orjson.dumps({"error": "the service failed; its log says why"}) + b"\n"
            await send({"type": "http.response.body", "body": failed, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _lines(segments: Iterable[Segment]) -> bytes:
    return b"".join(orjson.dumps(segment) + b"\n" for segment in segments)


ROUTES = [Route(PATH, vad, methods=["POST"])]
