"""A proxy on loopback for an API, which forwards every request unchanged and records the answers.

GitHub has a separate host for uploads, named in ``upload_url``. The proxy replaces this host by its own path
``/uploads``, so that an upload to any other address is noticed.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.doubles.loopback import LoopbackServer, QuietHandler, listening

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
        with listening(LoopbackServer(partial(_Handler, self))) as self.url:
            yield self

    def objections(self) -> list[str]:
        """Return a line for each request with an objection."""
        return [
            f"{item.request.method} {item.request.path}: {item.status} {item.objection}"
            for item in self.exchanges
            if item.objection
        ]


class _Handler(QuietHandler):
    def __init__(self, front: Front, *of_server: Any) -> None:  # noqa: ANN401 - what a server gives its handlers
        self._front = front
        super().__init__(*of_server)

    def do_GET(self) -> None:  # noqa: N802 a name that the base class looks for
        front = self._front
        request, target = self._read(front)
        status, headers, data = _forwarded(self, target, request.body)
        answer = _json(headers, data)
        objection = _objection(headers, answer)
        front.exchanges.append(Exchange(request=request, status=status, objection=objection, answer=answer))
        self.respond(status, _for_client(front, request, answer, data), headers)

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 further ones

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


def _forwarded(handler: _Handler, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return the answer's status, its headers by their names in lower case, and its content."""
    split = urlsplit(target)
    headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
    with closing(http.client.HTTPConnection(split.netloc, timeout=30)) as connection:
        connection.request(handler.command, target.removeprefix(f"http://{split.netloc}"), body, headers)
        response = connection.getresponse()
        kept = {key.lower(): value for key, value in response.getheaders()}
        return response.status, {key: kept[key] for key in kept.keys() - _NOT_PASSED_ON}, response.read()


def _json(headers: dict[str, str], data: bytes) -> object:
    return json.loads(data) if data and "json" in headers.get("content-type", "") else None


def _objection(headers: dict[str, str], answer: object) -> str:
    """Return Prism's objection to the request, from the header ``sl-violations`` or from a problem's body."""
    if headers.get("content-type", "").startswith("application/problem+json"):
        return json.dumps(answer)
    found = json.loads(headers.get("sl-violations", "[]"))
    return "; ".join(item["message"] for item in found if item["location"][0] == "request")


def _for_client(front: Front, request: Request, answer: object, data: bytes) -> bytes:
    if answer is None:
        return data
    amended = json.dumps(front.amend(request, answer))
    return amended.replace(front.named, front.url + _UPLOADS).encode()
