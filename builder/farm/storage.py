"""Server of ccache's remote storage in the build container: HTTP on loopback, forwarded through a socket.

The step has no network. It reaches only the forwarded socket, and at its other end
``builder.compile.compile_cache``, which has the servers' addresses and passwords. ccache reads
objects by their keys (GET, HEAD) and writes new objects (PUT).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_UNIX, socket
from socketserver import BaseServer

from builder.farm import agent

YES, NO = b"1", b"0"
"""The first byte of a reply: ``YES`` if an object is there (its bytes follow) or was kept, else ``NO``."""

WAITING = 1024
"""Connections that may wait to be accepted; a compiler that is refused works without the cache."""

POLL = 0.05
"""Seconds within which a server ends when its build does."""

MAY_PUT = b"MAY PUT"
"""The request whose reply is ``YES`` if new objects are kept."""


@contextmanager
def served(path: Path) -> Iterator[dict[str, str]]:
    """Serve ccache through the socket at ``path`` until the block ends; yield the variables for ccache.

    Yields no variables where no socket was forwarded.
    """
    if not path.is_socket():
        yield {}
        return
    with _connected(path) as ask:
        keeps = ask(MAY_PUT) == YES
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, path)) as server:
        server.socket.listen(WAITING)
        threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        storage = address if keeps else f"{address}|read-only"
        try:
            # ccache 4.5 knows only this older name, later versions know both
            yield {"CCACHE_SECONDARY_STORAGE": storage, **({"CCACHE_RESHARE": "1"} if keeps else {})}
        finally:
            server.shutdown()


@contextmanager
def _connected(path: Path) -> Iterator[Callable[[bytes], bytes]]:
    """Connect to the socket, and yield the function that sends a request and returns its reply."""
    with socket(AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rb") as reads, connection.makefile("wb") as writes:
            yield partial(agent.ask, reads, writes)


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection from a ccache process, with one connection to the socket."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, through: Path, request: socket, address: object, server: BaseServer) -> None:
        with _connected(through) as self._ask:
            super().__init__(request, address, server)

    def do_GET(self) -> None:
        answer = self._ask(self._request())
        self._reply(HTTPStatus.OK if answer.startswith(YES) else HTTPStatus.NOT_FOUND, answer[1:])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        value = self.rfile.read(size)
        fits = len(value) == size < agent.LARGEST  # shorter if ccache was killed
        is_kept = fits and self._ask(self._request() + value) == YES
        self._reply(HTTPStatus.CREATED if is_kept else HTTPStatus.INSUFFICIENT_STORAGE)

    def _request(self) -> bytes:
        return f"{self.command} {self.path.lstrip('/')}\n".encode()

    def _reply(self, status: HTTPStatus, value: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, *_: object) -> None:
        """Write no log, because ccache writes its own."""
