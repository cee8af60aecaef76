"""Requests and answers in the form of SSH agent messages, over one connection.

An agent's socket is the one that BuildKit forwards into a step that has no network
(``RUN --mount=type=ssh``). buildx reads the messages and passes on what an agent may be asked, so a request
stands where the data to be signed would be, and its answer where the signature would be
(draft-miller-ssh-agent, section 4.5). Any other socket (``raw=true``) came with buildx 0.25.

``ask`` is the container's end, ``serve`` that of the machine which called buildx.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BufferedIOBase

NAME = "compile-cache"
"""The socket's: ``--ssh=compile-cache=PATH`` for ``--mount=type=ssh,id=compile-cache``."""

LARGEST = 15 << 20
"""The most bytes of a request or an answer; an agent's message has at most 16 MiB."""

_FAILURE, _SIGN_REQUEST, _SIGN_RESPONSE = b"\5", b"\15", b"\16"

_NO_KEY = b"ortpacks"
"""Stands for the key and for the signature's algorithm."""


def ask(reads: BufferedIOBase, writes: BufferedIOBase, request: bytes) -> bytes:
    """The answer to ``request``. Raises ``OSError`` where none comes."""
    _send(writes, _SIGN_REQUEST + _string(_string(_NO_KEY)) + _string(request) + bytes(4))
    message = _receive(reads)
    if message[:1] != _SIGN_RESPONSE:
        raise ConnectionError("the compile cache's socket gave no answer")
    return _strings(_strings(message[1:])[0])[1]


def serve(reads: BufferedIOBase, writes: BufferedIOBase, answer: Callable[[bytes], bytes]) -> None:
    """Answer each request until the other end goes away; refuse what is none."""
    while message := _receive(reads):
        if message[:1] == _SIGN_REQUEST:
            reply = answer(_strings(message[1:])[1])
            _send(writes, _SIGN_RESPONSE + _string(_string(_NO_KEY) + _string(reply)))
        else:
            _send(writes, _FAILURE)


def _send(writes: BufferedIOBase, message: bytes) -> None:
    writes.write(_string(message))
    writes.flush()


def _receive(reads: BufferedIOBase) -> bytes:
    """The next message; empty at the end."""
    head = reads.read(4)
    return reads.read(struct.unpack(">I", head)[0]) if len(head) == 4 else b""  # noqa: PLR2004


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _strings(data: bytes) -> list[bytes]:
    """The strings that ``data`` begins with; what follows them, flags, makes an empty one."""
    found = []
    while len(data) >= 4:  # noqa: PLR2004
        end = 4 + struct.unpack(">I", data[:4])[0]
        found.append(data[4:end])
        data = data[end:]
    return found
