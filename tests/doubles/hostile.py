"""What mirrors, proxies and worse answer in place of an archive: faults for ``doubles.release.Server``."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from tests.doubles.release import Fault, Handler

PATIENCE = 400
"""Bytes after which a server that dribbles has had enough itself."""


def start_of(handler: Handler) -> int:
    """The byte that was asked for."""
    return int((handler.headers.get("Range") or "bytes=0-")[6:-1])


def cut_at(point: int) -> Fault:
    """The connection ends after the file's byte ``point``, whatever was asked for."""

    def fault(handler: Handler, content: bytes) -> None:
        start = start_of(handler)
        told = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        handler.answer(206 if start else 200, content[start:], told, cut=max(point - start, 0))

    return fault


def reset_at(point: int) -> Fault:
    """As ``cut_at``, but with a reset, which takes along what was not read yet."""

    def fault(handler: Handler, content: bytes) -> None:
        cut_at(point)(handler, content)
        handler.wfile.flush()
        linger = b"\1\0\0\0\0\0\0\0"
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.connection.close()

    return fault


def status(code: int, headers: dict[str, str] | None = None) -> Fault:
    """A status, with a page that is no archive."""
    return lambda handler, content: handler.answer(code, b"<html>sorry</html>", headers)


def redirect(location: str | None) -> Fault:
    """Elsewhere."""
    return status(302, {"Location": location} if location else None)


def ranged(
    shift: int = 0, more: int = 0, total: int = 0, flip: int = 0, *, header: str | None = None
) -> Fault:
    """206 with other bytes, or other words, than were asked for."""

    def fault(handler: Handler, content: bytes) -> None:
        start = start_of(handler) + shift
        body = bytes(byte ^ flip for byte in content[start:]) + bytes(more)
        told = f"bytes {start}-{len(content) - 1}/{len(content) + total}"
        handler.answer(206, body, {"Content-Range": told} if header is None else {"Content-Range": header})

    return fault


def whole(handler: Handler, content: bytes) -> None:
    """200 and all of it, whatever was asked for."""
    handler.answer(200, content)


def stale(handler: Handler, content: bytes) -> None:
    """The head of a file that was replaced since: the server knows another tag for it now."""
    handler.answer(200, bytes(len(content)), {"ETag": '"stale"'}, cut=300)


def chunked(spoil: bytes = b"") -> Fault:
    """Without a length; ``spoil`` in place of the next chunk's."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for begin in range(0, len(content), 1000):
            piece = content[begin : begin + 1000]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if spoil:
                handler.wfile.write(spoil)
                handler.close_connection = True
                return
        handler.wfile.write(b"0\r\n\r\n")

    return fault


def says(line: bytes) -> Fault:
    """Not what HTTP says at all."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.wfile.write(line)
        handler.close_connection = True

    return fault


def dribbles(head: bytes) -> Fault:
    """A byte now and then, after ``head``; it would go on for ever."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.wfile.write(head.replace(b"SIZE", b"%d" % len(content)))
        with suppress(OSError):
            for begin in range(PATIENCE):
                handler.wfile.write(content[begin : begin + 1] if b"SIZE" in head else b"x")
                time.sleep(0.002)
        handler.close_connection = True

    return fault


def silent(handler: Handler, content: bytes) -> None:
    """Half of it, then nothing, the connection open."""
    handler.answer(200, content, cut=len(content) // 2)
    handler.wfile.flush()
    with suppress(OSError):
        handler.connection.settimeout(5)
        handler.connection.recv(1)
