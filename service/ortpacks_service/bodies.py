"""Readers of requests' bodies."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request

from ortpacks_service.errors import RequestError

_BODIES = 2
"""The number of bodies of the largest size that may be in memory together."""


class Bodies:
    """The size of all requests' bodies in memory. Bodies come in the event loop and go in any thread."""

    def __init__(self) -> None:
        self._size = 0
        self._gone: deque[int] = deque()

    def grow(self, by: int) -> int:
        """Add ``by`` bytes and return the size of all bodies."""
        while self._gone:
            self._size -= self._gone.popleft()
        self._size += by
        return self._size

    def go(self, size: int) -> None:
        """Subtract a body's size."""
        self._gone.append(size)


class Body:
    """A request's body, which counts until nothing refers to it."""

    def __init__(self, bodies: Bodies) -> None:
        self.content = b""
        self.size = 0
        self._bodies = bodies

    def grow(self, by: int) -> int:
        """Add ``by`` bytes to the size, and return the size of all requests' bodies."""
        self.size += by
        return self._bodies.grow(by)

    def __del__(self) -> None:
        self._bodies.go(self.size)


async def body_of(request: Request) -> Body:
    """Return the whole body.

    Raises ``RequestError`` for an encoded or too large one, and while others fill the memory for bodies.
    """
    encoding = request.headers.get("content-encoding", "")
    if encoding.lower() not in ("", "identity"):
        raise RequestError(
            f"Content-Encoding: {encoding[:20]!r} is not read here; send the body as it is", 415
        )
    service = request.app.state.service
    most = service.options.body_mib << 20
    body, pieces = Body(service.bodies), []
    async for piece in request.stream():
        together = body.grow(len(piece))
        if body.size > most:
            raise RequestError(f"the body is larger than {most >> 20} MiB. --body-mib allows more.", 413)
        if together > _BODIES * most:
            full = f"bodies of {_BODIES * most >> 20} MiB are in memory already. Try again in a second."
            raise RequestError(full, 503, 1)
        pieces.append(piece)
    body.content = b"".join(pieces)
    return body


async def object_of(request: Request) -> Mapping[str, Any]:
    """Return the body's JSON object. Raises ``RequestError`` for anything else."""
    try:
        found = orjson.loads((await body_of(request)).content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("the body: a JSON object is wanted")
    return found


def texts_of(body: Mapping[str, Any], key: str, most: int) -> list[str]:
    """Return the texts under ``key``, a text or a list of at most ``most`` texts. Raises ``RequestError``."""
    if key not in body:
        there = f"; found {', '.join(map(repr, body))[:100]}" if body else ""
        raise RequestError(f"{key}: a text or a list of texts is wanted{there}")
    given = [body[key]] if isinstance(body[key], str) else body[key]
    if not isinstance(given, Sequence) or not given or not all(isinstance(text, str) for text in given):
        raise RequestError(f"{key}: a text or a list of texts is wanted")
    if len(given) > most:
        raise RequestError(f"{key}: {len(given)} texts; at most {most} are taken at once (--texts)", 413)
    empty = next((at for at, text in enumerate(given) if not text.strip()), None)
    if empty is not None:
        raise RequestError(f"{key}[{empty}] is empty")
    return list(given)


def count_of(body: Mapping[str, Any], key: str, default: int, most: int) -> int:
    """Return the whole number from 1 to ``most`` under ``key``.

    Raises ``RequestError`` for any other value.
    """
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestError(f"{key}: a whole number from 1 to {most} is wanted, found {str(value)[:20]}")
    return value
