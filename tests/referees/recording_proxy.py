"""A proxy on loopback for an API, which forwards every request unchanged and records the answers.

GitHub has a separate host for uploads, named in ``upload_url``. The proxy replaces this host by its own path
``/uploads``, so that an upload to any other address is noticed.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qsl, urlsplit

from tests.doubles.loopback import listening

_UPLOADS = "/uploads"
_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A received request. ``host`` is ``api`` or ``uploads``; ``path`` is still quoted."""

    host: str
    method: str
    path: str
    query: dict[str, str]
    accept: str
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and its answer. ``objection`` is Prism's complaint about the request; empty for none."""

    request: Request
    status: int
    objection: str
    answer: object
    """JSON of the answer; ``None`` for an answer of another type."""


Amend = Callable[[Request, object], object]


@dataclass(kw_only=True)
class Front:
    """A proxy for the API at ``api`` with uploads to ``uploads``; ``named`` is this host's URL in answers.

    ``amend`` may change a JSON answer for the client; ``exchanges`` has the API's own answers.
    """

    api: str
    uploads: str
    named: str
    amend: Amend = lambda request, answer: answer
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Front]:
        with listening(_Server(self)) as self.url:
            yield self

    def objections(self) -> list[str]:
        """Return a line for each request with an objection."""
        return [
            f"{item.request.method} {item.request.path}: {item.status} {item.objection}"
            for item in self.exchanges
            if item.objection
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, front: Front) -> None:
        self.front = front
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Print nothing, as ``Front.exchanges`` is the log."""

    def do_GET(self) -> None:
        self._exchange()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 names that the base class looks for

    def _exchange(self) -> None:
        front = cast("_Server", self.server).front
        request, target = self._read(front)
        status, headers, data = _forwarded(self, target, request.body)
        answer = _json(headers, data)
        objection = _objection(headers, answer)
        front.exchanges.append(Exchange(request=request, status=status, objection=objection, answer=answer))
        self._reply(status, headers, _for_client(front, request, answer, data))

    def _read(self, front: Front) -> tuple[Request, str]:
        """Read the request and return it with the URL to which it is forwarded."""
        uploading = self.path.startswith(f"{_UPLOADS}/")
        path = self.path.removeprefix(_UPLOADS) if uploading else self.path
        split = urlsplit(path)
        request = Request(
            host="uploads" if uploading else "api",
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query, keep_blank_values=True)),
            accept=self.headers.get("Accept", ""),
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        return request, (front.uploads if uploading else front.api) + path

    def _reply(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _forwarded(handler: _Handler, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    split = urlsplit(target)
    headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
    connection = http.client.HTTPConnection(split.netloc, timeout=30)
    try:
        connection.request(handler.command, target.removeprefix(f"http://{split.netloc}"), body, headers)
        response = connection.getresponse()
        data = response.read()
        kept = {key: value for key, value in response.getheaders() if key.lower() not in _NOT_PASSED_ON}
        return response.status, kept, data
    finally:
        connection.close()


def _json(headers: dict[str, str], data: bytes) -> object:
    kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "")
    return json.loads(data) if data and "json" in kind else None


def _objection(headers: dict[str, str], answer: object) -> str:
    """Return Prism's objection to the request, from the header ``sl-violations`` or from a problem's body."""
    said = {name.lower(): value for name, value in headers.items()}
    if said.get("content-type", "").startswith("application/problem+json"):
        return json.dumps(answer)
    found = json.loads(said.get("sl-violations", "[]"))
    return "; ".join(item["message"] for item in found if item["location"][0] == "request")


def _for_client(front: Front, request: Request, answer: object, data: bytes) -> bytes:
    if answer is None:
        return data
    amended = json.dumps(front.amend(request, answer))
    return amended.replace(front.named, front.url + _UPLOADS).encode()
