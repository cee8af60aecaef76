"""An HTTP server of a few files on loopback, with the failures of real mirrors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.doubles.loopback import listening


@dataclass
class FileServer:
    """A server of ``files``, by decoded path. Each request takes the first of ``faults``."""

    files: dict[str, bytes]
    faults: list[str] = field(default_factory=list)
    """Statuses such as ``500``, ``cut`` (the connection ends after half the body) or ``stall``.

    After ``stall`` nothing follows half the body until ``released`` is set.
    """
    ranges: bool = True
    etag: str = '"one"'
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Undecoded path and Range header of every request."""
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    """Event that ends a stall; 30 seconds end it too."""


@contextmanager
def serve(server: FileServer) -> Iterator[FileServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, server)

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    with listening(httpd) as url:
        server.url = f"{url}/debian"
        try:
            yield server
        finally:
            server.released.set()


def _answer(handler: BaseHTTPRequestHandler, server: FileServer) -> None:
    wanted = handler.headers.get("Range", "")
    server.requests.append((handler.path, wanted))
    fault = server.faults.pop(0) if server.faults else ""
    body = server.files.get(unquote(handler.path).removeprefix("/debian/"))
    if fault.isdigit() or body is None:
        _head(handler, int(fault) if fault else 404, {"Content-Length": "0"})
        return
    start = 0
    if wanted and server.ranges and handler.headers.get("If-Range", server.etag) == server.etag:
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
    headers = {"Content-Length": str(len(body) - start), "ETag": server.etag}
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
    _head(handler, 206 if start else 200, headers)
    _send(handler, server, body[start:], fault)


def _head(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()


def _send(handler: BaseHTTPRequestHandler, server: FileServer, body: bytes, fault: str) -> None:
    if fault not in {"cut", "stall"}:
        handler.wfile.write(body)
        return
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    if fault == "stall":
        server.released.wait(30)
    handler.close_connection = True
