"""Readers of requests' bodies."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request

from ortpacks_service.errors import RequestError, shown

_BODIES = 2
"""The number of bodies of the largest size that may be in memory together."""

_VALUE = 32
"""Bytes that a value of JSON, or a text of binary data, counts as besides its text.

To read and answer a number takes about 100 bytes, a text 200.
"""

_FEW = 1 << 15
"""The number of commas and brackets up to which it does not matter that texts may contain them."""

_TEXT = re.compile(rb'"[^"]*"?')
"""A text of JSON without escapes."""


class Bodies:
    """The size of all requests' bodies in memory. Bodies grow and go in any thread."""

    def __init__(self, most: int) -> None:
        """``most`` is the largest size of a body in bytes."""
        self.most = most
        self.most_values = _BODIES * most // _VALUE
        self._growing = threading.Lock()
        self._size = 0
        self._gone: deque[int] = deque()

    def grow(self, by: int) -> None:
        """Add ``by`` bytes. Raises ``RequestError`` if all bodies together are larger than their memory."""
        if self._added(by) > _BODIES * self.most:
            full = f"bodies of {_BODIES * self.most >> 20} MiB are in memory already. Try again in a second."
            raise RequestError(full, 503, 1)

    @property
    def size(self) -> int:
        """Size of all bodies in bytes."""
        return self._added(0)

    def _added(self, by: int) -> int:
        with self._growing:
            while self._gone:
                self._size -= self._gone.popleft()
            self._size += by
            return self._size

    def go(self, size: int) -> None:
        """Subtract a body's size. It takes no lock, since Python may call it within ``grow``."""
        self._gone.append(size)


def _begun(text: bytes, end: int) -> int:
    """Return the number of commas and opening brackets before offset ``end``; a value begins after each."""
    return sum(text.count(mark, 0, end) for mark in (b",", b"[", b"{"))


class Body:
    """A request's body, which counts until nothing refers to it."""

    def __init__(self, bodies: Bodies) -> None:
        self.content = b""
        self._size = 0
        self._bodies = bodies

    async def read(self, pieces: AsyncIterator[bytes]) -> None:
        """Read the whole body. Raises ``RequestError`` if it is too large, or others fill the memory."""
        found = []
        async for piece in pieces:
            if self._size + len(piece) > self._bodies.most:
                most = f"{self._bodies.most >> 20} MiB. --body-mib allows more."
                raise RequestError(f"the body is larger than {most}", 413)
            self._grow(len(piece))
            found.append(piece)
        self.content = b"".join(found)

    def require_room_for_json(self, end: int) -> None:
        """Count the values of the JSON before offset ``end`` as memory of the body.

        Raises ``RequestError`` for more of them than the memory for bodies holds, and while others fill it.
        """
        most = self._bodies.most_values
        values = self._json_values(end, most)
        if values > most:
            raise RequestError(
                f"the body's JSON has more than {most} values. Send tensors as binary data, or allow more "
                "with --body-mib.",
                413,
            )
        self._grow(_VALUE * values)

    def require_room_for_texts(self, texts: int) -> None:
        """Count texts of binary data as memory of the body, as ``require_room_for_json`` counts values."""
        most = self._bodies.most_values
        if texts > most:
            raise RequestError(f"the body has more than {most} texts. Allow more with --body-mib.", 413)
        self._grow(_VALUE * texts)

    def _grow(self, by: int) -> None:
        self._size += by
        self._bodies.grow(by)

    def _json_values(self, end: int, most: int) -> int:
        """Return the number of values in the JSON before offset ``end``, or a larger one.

        A number above ``most`` may be too small.
        """
        begun = _begun(self.content, end)
        if begun <= _FEW:
            return begun
        plain = self.content[:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        texts = plain.count(b'"') // 2
        return texts if texts > most else _begun(_TEXT.sub(b"", plain), len(plain))

    def __del__(self) -> None:
        self._bodies.go(self._size)


async def body_of(request: Request) -> Body:
    """Return the whole body.

    Raises ``RequestError`` for an encoded or too large one, and while others fill the memory for bodies.
    """
    encoding = request.headers.get("content-encoding", "")
    if encoding.lower() not in ("", "identity"):
        raise RequestError(
            f"Content-Encoding: {encoding[:20]!r} is not read here; send the body as it is", 415
        )
    body = Body(request.app.state.service.bodies)
    await body.read(request.stream())
    return body


class JsonObject(dict[str, Any]):
    """The JSON object of a body, which counts as memory until nothing refers to the object."""

    def __init__(self, values: Mapping[str, Any], body: Body) -> None:
        super().__init__(values)
        self._body = body
        body.content = b""  # the values are what is in memory now


async def object_of(request: Request) -> JsonObject:
    """Return the body's JSON object. Raises ``RequestError`` for anything else."""
    body = await body_of(request)
    body.require_room_for_json(len(body.content))
    try:
        found = orjson.loads(body.content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("the body: a JSON object is wanted")
    return JsonObject(found, body)


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
        raise RequestError(f"{key}: a whole number from 1 to {most} is wanted, found {shown(value)[:20]}")
    return value
