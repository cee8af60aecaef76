"""An HTTP server of a few files on loopback, with the failures of real mirrors."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.doubles.loopback import LoopbackServer, listening
from tests.doubles.release import Handler


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
    class FileHandler(Handler):
        def do_GET(self) -> None:  # noqa: N802 as http.server calls it
            _answer(self, server)

    with listening(LoopbackServer(FileHandler)) as url:
        server.url = f"{url}/debian"
        try:
            yield server
        finally:
            server.released.set()


def _answer(handler: Handler, server: FileServer) -> None:
    wanted = handler.headers.get("Range", "")
    server.requests.append((handler.path, wanted))
    fault = server.faults.pop(0) if server.faults else ""
    body = server.files.get(unquote(handler.path).removeprefix("/debian/"))
    if fault.isdigit() or body is None:
        handler.answer(int(fault) if fault else 404, b"")
        return
    start = 0
    if wanted and server.ranges and handler.headers.get("If-Range", server.etag) == server.etag:
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
    headers = {"ETag": server.etag}
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
    rest = body[start:]
    cut = len(rest) // 2 if fault in {"cut", "stall"} else None
    handler.answer(206 if start else 200, rest, headers, cut=cut)
    if fault == "stall":
        server.released.wait(30)
