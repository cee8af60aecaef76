"""Faults for ``doubles.release.Server``: wrong answers of mirrors, proxies and attackers."""

import socket
import time
from contextlib import suppress

from tests.doubles.release import Fault, Handler

FLOOD = 2**26
"""The most bytes of ``floods``: more than the buffers between server and client hold."""


def start_of(handler: Handler) -> int:
    """Return the first byte that the request's Range header names; 0 without one."""
    return int((handler.headers.get("Range") or "bytes=0-")[6:-1])


def cut_at(point: int) -> Fault:
    """Return a fault that ends the connection after the file's byte ``point``, for any requested range."""

    def fault(handler: Handler, content: bytes) -> None:
        start = start_of(handler)
        told = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        handler.answer(206 if start else 200, content[start:], told, cut=max(point - start, 0))

    return fault


def reset_at(point: int) -> Fault:
    """Return a fault like ``cut_at`` that resets the connection, so that unread bytes are lost."""

    def fault(handler: Handler, content: bytes) -> None:
        cut_at(point)(handler, content)
        handler.wfile.flush()
        linger = b"\1\0\0\0\0\0\0\0"
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.connection.close()

    return fault


def status(code: int, headers: dict[str, str] | None = None) -> Fault:
    """Return a fault that answers with this status and a page of HTML."""
    return lambda handler, content: handler.answer(code, b"<html>sorry</html>", headers)


def redirect(location: str | None) -> Fault:
    """Return a fault that answers 302 with this Location; ``None``: without the header."""
    return status(302, {"Location": location} if location else None)


def ranged(
    shift: int = 0, more: int = 0, total: int = 0, flip: int = 0, *, header: str | None = None
) -> Fault:
    """Return a fault that answers 206 with other bytes than requested, or with a wrong Content-Range.

    ``shift``: bytes added to the start; ``more``: zero bytes behind the body; ``total``: bytes added to the
    stated size of the file; ``flip``: mask that changes each byte; ``header``: the Content-Range.
    """

    def fault(handler: Handler, content: bytes) -> None:
        start = start_of(handler) + shift
        body = bytes(byte ^ flip for byte in content[start:]) + bytes(more)
        told = f"bytes {start}-{len(content) - 1}/{len(content) + total}"
        handler.answer(206, body, {"Content-Range": told} if header is None else {"Content-Range": header})

    return fault


def whole(handler: Handler, content: bytes) -> None:
    """Answer 200 with the whole file for any requested range."""
    handler.answer(200, content)


def stale(handler: Handler, content: bytes) -> None:
    """Answer with the first 300 bytes and the ETag of a file that is replaced afterwards."""
    handler.answer(200, bytes(len(content)), {"ETag": '"stale"'}, cut=300)


def chunked(spoil: bytes = b"", *, size: int = 1000) -> Fault:
    """Return a fault that sends the file in chunks of ``size`` bytes without Content-Length.

    With ``spoil``, these bytes follow the first chunk in place of the next length, and the connection ends.
    """

    def fault(handler: Handler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for begin in range(0, len(content), size):
            piece = content[begin : begin + size]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if spoil:
                handler.wfile.write(spoil)
                handler.close_connection = True
                return
        handler.wfile.write(b"0\r\n\r\n")

    return fault


def says(line: bytes) -> Fault:
    """Return a fault that answers with these bytes, which need not be HTTP, and ends the connection."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.wfile.write(line)
        handler.close_connection = True

    return fault


def dribbles(head: bytes, piece: bytes = b"x", times: int = 400, pause: float = 0.002) -> Fault:
    """Return a fault that sends ``head`` and then ``piece`` so many times; ``pause``: seconds after each.

    ``SIZE`` in ``head`` stands for the file's size; with it the pieces are the bytes of the file.
    """

    def fault(handler: Handler, content: bytes) -> None:
        with suppress(OSError):
            handler.wfile.write(head.replace(b"SIZE", b"%d" % len(content)))
            for begin in range(times):
                handler.wfile.write(content[begin : begin + 1] if b"SIZE" in head else piece)
                time.sleep(pause)
        handler.close_connection = True

    return fault


def floods(head: bytes, piece: bytes) -> Fault:
    """Return a fault that sends ``head`` and then ``piece`` over and over, up to ``FLOOD`` bytes.

    ``Server.flooded`` has the number of bytes that were sent before the client hung up.
    """

    def fault(handler: Handler, content: bytes) -> None:
        many = piece * (2**16 // len(piece) + 1)
        with suppress(OSError):
            handler.wfile.write(head)
            handler.host.flooded.append(0)
            while handler.host.flooded[-1] < FLOOD:
                handler.wfile.write(many)
                handler.host.flooded[-1] += len(many)
        handler.close_connection = True

    return fault


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"

LINE = b"X: y\r\n"

ENDLESS: dict[str, Fault] = {
    "100 Continue": floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "100 Continue with headers": floods(b"", b"HTTP/1.1 100 Continue\r\n" + LINE * 90 + b"\r\n"),
    "trailers": floods(CHUNKED + b"1\r\nx\r\n0\r\n", LINE),
    "chunk extensions": floods(CHUNKED, b"1;" + b"x" * 60_000 + b"\r\nx\r\n"),
}
"""Lines around a body that never end."""

CHUNK_SIZES: dict[str, Fault] = {
    name: says(CHUNKED + said + b"\r\nhello\r\n0\r\n\r\n")
    for name, said in {
        "-5": b"-5", "no number": b"five", "none": b"", "huge": b"f" * 40, "huge line": b"5" * 70_000
    }.items()
}  # fmt: skip
"""Chunks whose size is none."""


def silent(handler: Handler, content: bytes) -> None:
    """Send half the file, then nothing for 5 seconds with the connection open."""
    handler.answer(200, content, cut=len(content) // 2)
    handler.wfile.flush()
    with suppress(OSError):
        handler.connection.settimeout(5)
        handler.connection.recv(1)
