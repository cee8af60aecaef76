"""An HTTP server of a few files on loopback, whose connections may break off."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.doubles.loopback import LoopbackServer, listening
from tests.doubles.release import Handler


@dataclass
class FileServer:
    """A server of ``files``, by decoded path."""

    files: dict[str, bytes]
    cuts: int = 0
    """Number of the next answers that end after half the body."""
    etag: str = '"one"'
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Undecoded path and Range header of every request."""
    url: str = ""


@contextmanager
def serve(server: FileServer) -> Iterator[FileServer]:
    class FileHandler(Handler):
        def do_GET(self) -> None:  # noqa: N802 as http.server calls it
            _answer(self, server)

    with listening(LoopbackServer(FileHandler)) as url:
        server.url = f"{url}/debian"
        yield server


def _answer(handler: Handler, server: FileServer) -> None:
    wanted = handler.headers.get("Range", "")
    server.requests.append((handler.path, wanted))
    body = server.files.get(unquote(handler.path).removeprefix("/debian/"))
    if body is None:
        handler.answer(404, b"")
        return
    start, headers = 0, {"ETag": server.etag}
    if wanted and handler.headers.get("If-Range", server.etag) == server.etag:
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
    rest = body[start:]
    server.cuts, cut = max(server.cuts - 1, 0), server.cuts
    handler.answer(206 if start else 200, rest, headers, cut=len(rest) // 2 if cut else None)
