"""Runner of a server of the standard library inside a block, and a server of a folder's files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


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


class QuietFiles(SimpleHTTPRequestHandler):
    """The request handler of ``python -m http.server``, without its log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Log no request."""


@contextmanager
def static_server(folder: Path) -> Iterator[str]:
    """Serve a folder on 127.0.0.1 and yield the server's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(folder)))
    with listening(server) as url:
        yield url
