"""Readers of requests' bodies."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ortpacks_service.errors import RequestError, shown

VALUE = 128
"""Bytes that a value of JSON, or a binary text, takes beside its letters: a number 100, a text 200."""

_TWICE, _WIDE = 2, 4
"""Bytes that a byte of JSON may take: as a letter and in a copy; in a text with letters beyond ASCII."""

_PIECE = 1 << 18
"""Bytes of an answer that are sent at once; before each piece, the client has read most of the one before."""

_FEW = 1 << 15
"""The number of commas and brackets up to which it does not matter that texts may contain them."""

_JSON = "application/json"

_TEXT = re.compile(rb'"[^"]*"?')
"""A text of JSON without escapes."""


class Bodies:
    """The size of all requests' bodies and answers in memory. They grow and go in any thread."""

    def __init__(self, most: int, room: int) -> None:
        """``most`` is the largest size of a body in bytes, ``room`` that of all together."""
        self.most = min(most, room)
        self.room = room
        self._growing = threading.Lock()
        self._size = 0
        self._gone: deque[int] = deque()

    def grow(self, by: int) -> None:
        """Add ``by`` bytes. Raises ``RequestError`` if all bodies together are larger than their memory."""
        if self._added(by) > self.room:
            full = f"requests of {self.room >> 20} MiB are in memory already. Try again in a second."
            raise RequestError(full, 503, 1)

    def _added(self, by: int) -> int:
        with self._growing:
            while self._gone:
                self._size -= self._gone.popleft()
            self._size += by
            return self._size

    def go(self, size: int) -> None:
        """Subtract a body's size. It takes no lock, since Python may call it within ``grow``."""
        self._gone.append(size)


def _begun(text: bytes | bytearray, end: int) -> int:
    """Return the number of commas and opening brackets before offset ``end``; a value begins after each."""
    return sum(text.count(mark, 0, end) for mark in (b",", b"[", b"{"))


class Body:
    """A request's body, which counts until nothing refers to it."""

    def __init__(self, bodies: Bodies) -> None:
        self.content: bytes | bytearray = b""
        self._size = 0
        self._bodies = bodies

    async def read(self, pieces: AsyncIterator[bytes]) -> None:
        """Read the whole body. Raises ``RequestError`` if it is too large, or others fill the memory."""
        found = bytearray()  # a list of the pieces, and then all of them, would be in memory together
        async for piece in pieces:
            if self._size + len(piece) > self._bodies.most:
                most = f"{self._bodies.most >> 20} MiB. --body-mib allows more."
                raise RequestError(f"the body is larger than {most}", 413)
            self.grow(len(piece))
            found += piece
        self.content = found

    def require_room_for_json(self, end: int) -> None:
        """Count as memory of the body what is made of the JSON before offset ``end``: values and their texts.

        Raises ``RequestError`` for more than the memory for bodies holds, and while others fill it.
        """
        most = self._bodies.room // VALUE
        plain = self.content.isascii() and b"\\u" not in self.content
        self.grow(end * (_TWICE if plain else _WIDE))
        values = self._json_values(end, most)
        if values > most:
            do = "Send tensors as binary data, or allow more with --body-mib."
            raise RequestError(f"the body's JSON has more than {most} values. {do}", 413)
        self.grow(VALUE * values)

    def grow(self, by: int) -> None:
        """Count more bytes, of what was read or of an answer. Raises ``RequestError`` if there is no room."""
        if self._size + by > self._bodies.room:
            what = f"the request and its answer take more than {self._bodies.room >> 20} MiB of memory"
            do = "Send or ask for less at once, tensors as binary data, or allow more with --memory-mib, "
            raise RequestError(f"{what}. {do}--body-mib.", 413)
        self._size += by
        self._bodies.grow(by)

    def drop_content(self) -> None:
        """Count the content no more, of which only values are left."""
        self._size -= len(self.content)
        self._bodies.go(len(self.content))
        self.content = b""

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
        raise RequestError(f"Content-Encoding: {encoding[:20]!r} is not read here; send the body plain", 415)
    body = Body(request.app.state.service.bodies)
    await body.read(request.stream())
    return body


class JsonObject(dict[str, Any]):
    """The JSON object of a body, which counts as memory until nothing refers to the object."""

    def __init__(self, values: Mapping[str, Any], body: Body) -> None:
        super().__init__(values)
        self.body = body
        body.drop_content()


class Answer(Response):
    """An answer that counts as memory of its request's body until the client has read it."""

    def __init__(self, content: bytes, body: Body, headers: Mapping[str, str]) -> None:
        """Raises ``RequestError`` if there is no room for the content."""
        body.grow(len(content))
        super().__init__(content, headers=headers)
        self._counted = body

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the content in pieces."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for at in range(0, len(self.body), _PIECE):
            piece = bytes(self.body[at : at + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def json_answer(value: object, body: Body, headers: Mapping[str, str] = MappingProxyType({})) -> Answer:
    """Return the value as JSON, numpy's arrays too. Raises ``RequestError`` if there is no room for it."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Answer(content, body, {"Content-Type": "application/json", **headers})


async def object_of(request: Request, *, changes: bool = False) -> JsonObject:
    """Return the body's JSON object. Raises ``RequestError`` for anything else.

    Where the request changes something, its type must be JSON's too: a page in a browser can send others to
    any address without asking.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if changes and kind != _JSON:
        raise RequestError(f"Content-Type: {_JSON} is wanted, found {kind[:50]!r}", 415)
    body = await body_of(request)
    body.require_room_for_json(len(body.content))
    try:
        found = orjson.loads(body.content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("the body: a JSON object is wanted")
    return JsonObject(found, body)


def require_fields(body: Mapping[str, Any], form: type) -> None:
    """Raise ``RequestError`` for a field that the request's form lacks: nothing would come of it."""
    other = next((name for name in body if name not in form.__annotations__), None)
    if other is not None:
        known = ", ".join(form.__annotations__)
        raise RequestError(f"{other[:100]!r} is no field of this request. It has {known}.")


def texts_of(body: JsonObject, key: str, most: int) -> list[str]:
    """Return the texts under ``key``, a text or a list of at most ``most`` texts. Raises ``RequestError``."""
    given = [body[key]] if isinstance(body.get(key), str) else body.get(key)
    if not isinstance(given, list) or not given or not all(isinstance(text, str) for text in given):
        raise RequestError(f"{key}: a text or a list of texts is wanted")
    if len(given) > most:
        raise RequestError(f"{key}: {len(given)} texts; at most {most} are taken at once (--texts)", 413)
    empty = next((at for at, text in enumerate(given) if not text or text.isspace()), None)
    if empty is not None:
        raise RequestError(f"{key}[{empty}] is empty")
    return given


def count_of(body: Mapping[str, Any], key: str, default: int, most: int, least: int = 1) -> int:
    """Return the whole number from ``least`` to ``most`` under ``key``.

    Raises ``RequestError`` for any other value.
    """
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError(f"{key}: a whole number, {least} to {most}, is wanted, found {shown(value)[:20]}")
    return value
