"""Runner of a server of the standard library inside a block, and a server of a folder's files."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler


@contextmanager
def listening(server: HTTPServer) -> Iterator[str]:
    """Run ``server`` inside the block and yield its URL, which has no slash at the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class LoopbackServer(ThreadingHTTPServer):
    """A server on a free port of 127.0.0.1."""

    def __init__(self, handler: Callable[..., BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class QuietHandler(BaseHTTPRequestHandler):
    """A handler without a log, whose connection stays open for the next request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it delays the second write of an answer by 40 ms

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Print nothing."""

    def respond(
        self, status: int, content: bytes, headers: Mapping[str, str] | None = None, *, cut: int | None = None
    ) -> None:
        """Answer with ``content``; with ``cut``, close the connection after so many bytes of the body."""
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content[:cut])
        self.close_connection = cut is not None or self.close_connection


class QuietFiles(QuietHandler, SimpleHTTPRequestHandler):
    """The request handler of ``python -m http.server``, without its log."""

    protocol_version = "HTTP/1.0"


@contextmanager
def static_server(folder: Path) -> Iterator[str]:
    """Serve a folder on 127.0.0.1 and yield the server's URL."""
    with listening(LoopbackServer(partial(QuietFiles, directory=str(folder)))) as url:
        yield url
