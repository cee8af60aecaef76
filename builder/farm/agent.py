"""Requests and replies as SSH agent messages over one connection.

BuildKit forwards an SSH agent's socket into a step that has no network (``RUN --mount=type=ssh``). buildx
reads the messages and passes only the agent's requests on. So a request is sent in place of the data to be
signed, and its reply comes in place of the signature (draft-miller-ssh-agent, section 4.5). Other sockets
(``raw=true``) need buildx 0.25. ``ask`` runs in the container, ``serve`` on the machine that called buildx.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BufferedIOBase

NAME = "compile-cache"
"""The socket's name: ``--ssh=compile-cache=PATH`` for ``--mount=type=ssh,id=compile-cache``."""

LARGEST = 15 << 20
"""Most bytes of a request or a reply; an agent's message has at most 16 MiB."""

_FAILURE, _SIGN_REQUEST, SIGN_RESPONSE = b"\5", b"\15", b"\16"

_NO_KEY = b"ortpacks"
"""The text in place of the key and of the signature's algorithm."""


def sign_request(key: bytes, data: bytes) -> bytes:
    """Return the message that asks for a signature of ``data`` by ``key``, without flags."""
    return _SIGN_REQUEST + string(key) + string(data) + bytes(4)


def ask(reads: BufferedIOBase, writes: BufferedIOBase, request: bytes) -> bytes:
    """Send ``request`` and return the reply. Raises ``OSError`` where there is none."""
    send(writes, sign_request(string(_NO_KEY), request))
    message = receive(reads)
    if message[:1] != SIGN_RESPONSE:
        raise ConnectionError("the compile cache's socket gave no answer")
    return _strings(_strings(message[1:])[0])[1]


def serve(reads: BufferedIOBase, writes: BufferedIOBase, answer: Callable[[bytes], bytes]) -> None:
    """Reply to each request with ``answer`` until the connection ends; refuse messages of other types."""
    while message := receive(reads):
        if message[:1] == _SIGN_REQUEST:
            reply = answer(_strings(message[1:])[1])
            send(writes, SIGN_RESPONSE + string(string(_NO_KEY) + string(reply)))
        else:
            send(writes, _FAILURE)


def send(writes: BufferedIOBase, message: bytes) -> None:
    """Send a message of an agent's protocol."""
    writes.write(string(message))
    writes.flush()


def receive(reads: BufferedIOBase) -> bytes:
    """Return the next message; empty at the connection's end, even in the middle of a message."""
    head = reads.read(4)
    size = struct.unpack(">I", head)[0] if len(head) == 4 else 0  # noqa: PLR2004
    message = reads.read(size)
    return message if len(message) == size else b""


def string(value: bytes) -> bytes:
    """Return a string of an agent's protocol, which begins with its length."""
    return struct.pack(">I", len(value)) + value


def _strings(data: bytes) -> list[bytes]:
    """Return the strings in ``data``; a request's final flags, four zeros, are read as an empty string."""
    strings = []
    while len(data) >= 4:  # noqa: PLR2004
        end = 4 + struct.unpack(">I", data[:4])[0]
        strings.append(data[4:end])
        data = data[end:]
    return strings
