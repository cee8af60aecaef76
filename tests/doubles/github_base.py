"""What the double keeps, and what its two kinds of host have in common. See ``tests.doubles.github``."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from tests.doubles.github import GitHubDouble, Server

_BLOCK = 1 << 16
REPO = r"/repos/(?P<repo>[^/]+/[^/]+)/releases"


class Route(NamedTuple):
    method: str
    pattern: str
    name: str
    public: bool


@dataclass
class Fault:
    """What goes wrong next on ``route``: create, tag, list, assets, asset, upload, delete, publish, download.

    Any route: a status (``500``, ``502``, ``401`` ...), ``hangup``, ``retry-after``, ``429``, ``reset``,
    ``secondary``, ``echo`` (422 that repeats the token), ``elsewhere`` (302 to the other host), ``moved``.
    Create, publish, upload: ``landed`` (502, but done).
    Upload: ``cut`` and ``cut-starter`` after ``after`` bytes, ``starter`` (502, half an asset), ``race`` and
    ``race-other`` (422: someone was faster with the same or other bytes), ``corrupt`` (other bytes stored),
    ``wrong-digest`` (the answer lies), ``no-digest``, ``late-digest``, ``truncated`` (half a 201).
    Download: ``cut``.
    """

    route: str
    kind: str
    after: int = 0
    seconds: int = 7


@dataclass
class Seen:
    """One request as it came in."""

    host: str
    method: str
    path: str
    authorized: bool


@dataclass
class StoredAsset:
    id: int
    name: str
    size: int
    digest: str | None
    state: str
    file: Path


@dataclass
class StoredRelease:
    id: int
    tag: str
    title: str
    body: str
    draft: bool
    target: str = "main"
    """Commit or branch that the tag is made on, should it not be there yet."""
    immutable: bool = False
    order: int = 0
    """When it was published, for ``latest``."""
    assets: dict[int, StoredAsset] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """Finds the route, logs the request, plays the fault if any, else calls the route's method."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: 40 ms each otherwise
    routes: ClassVar[tuple[Route, ...]] = ()

    @property
    def double(self) -> GitHubDouble:
        return cast("Server", self.server).double

    def do_GET(self) -> None:
        self._dispatch()

    def do_HEAD(self) -> None:
        self._dispatch()

    def do_POST(self) -> None:
        self._dispatch()

    def do_PATCH(self) -> None:
        self._dispatch()

    def do_DELETE(self) -> None:
        self._dispatch()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Quiet: the double keeps its own log."""

    def _dispatch(self) -> None:
        split = urlsplit(self.path)
        self.query = parse_qs(split.query)
        self.left = int(self.headers.get("Content-Length") or 0)
        self.authorized = self.headers.get("Authorization") == f"Bearer {self.double.token}"
        host = cast("Server", self.server).host
        self.double.requests.append(Seen(host, self.command, self.path, "Authorization" in self.headers))
        for route in self.routes:
            match = re.fullmatch(route.pattern, unquote(split.path))
            if match and self.command in (route.method, "HEAD" if route.method == "GET" else route.method):
                return self._serve(route, match.groupdict())
        return self.answer(404, {"message": "Not Found"})

    def _serve(self, route: Route, found: dict[str, str]) -> None:
        if found.pop("repo", self.double.repository) != self.double.repository:
            return self.answer(404, {"message": "Not Found"})
        if "Authorization" in self.headers and not self.authorized and not self.path.startswith("/blob/"):
            return self.answer(401, {"message": "Bad credentials"})
        if not route.public and not self.authorized:
            return self.answer(401, {"message": "Requires authentication"})
        self.fault = self.double.take_fault(route.name)
        if self.fault is not None and self._refuse(self.fault):
            return None
        return cast("None", getattr(self, route.name)(**found))

    def _refuse(self, fault: Fault) -> bool:
        """Play a fault that every route knows; whether it was one."""
        if fault.kind.isdigit() and fault.kind != "429":
            self.answer(int(fault.kind), {"message": f"Resource said {fault.kind}"})
        elif fault.kind == "hangup":
            self.hang_up()
        elif fault.kind in ("retry-after", "429"):
            status = 429 if fault.kind == "429" else 403
            self.answer(status, {"message": "Slow down"}, {"Retry-After": str(fault.seconds)})
        elif fault.kind == "reset":
            reset = str(int(time.time()) + fault.seconds)
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
            self.answer(403, {"message": "API rate limit exceeded"}, headers)
        elif fault.kind == "secondary":
            self.answer(403, {"message": "You have exceeded a secondary rate limit."})
        elif fault.kind == "echo":
            self.answer(422, {"message": f"cannot use {self.headers['Authorization']}"})
        elif fault.kind in ("elsewhere", "moved"):
            target = f"{self.double.storage.url}/elsewhere"
            self.answer(302 if fault.kind == "elsewhere" else 307, {}, {"Location": target})
        else:
            return False
        return True

    def answer(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        self.read_body()
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def hang_up(self) -> None:
        self.close_connection = True

    def read_body(self, target: Path | None = None, limit: int | None = None) -> bytes:
        """Take the request's body, up to ``limit`` bytes: into ``target``, or returned."""
        wanted = self.left if limit is None else min(limit, self.left)
        data = bytearray()
        stream = target.open("wb") if target else None
        while wanted:
            block = self.rfile.read(min(_BLOCK, wanted))
            if not block:
                break
            wanted -= len(block)
            self.left -= len(block)
            if stream:
                stream.write(block)
            else:
                data += block
        if stream:
            stream.close()
        return bytes(data)

    def find(self, number: str) -> StoredRelease | None:
        return self.double.releases.get(int(number))

    def find_asset(self, number: str) -> tuple[StoredRelease, StoredAsset] | None:
        for release in self.double.releases.values():
            if int(number) in release.assets and (self.authorized or not release.draft):
                return release, release.assets[int(number)]
        return None

    def page(self, items: list[dict[str, object]]) -> None:
        size = int(self.query.get("per_page", ["30"])[0])
        start = (int(self.query.get("page", ["1"])[0]) - 1) * size
        self.answer(200, items[start : start + size])


def renamed(name: str) -> str:
    """GitHub's own name for an asset: anything special becomes a dot."""
    return re.sub(r"[^A-Za-z0-9._+@-]", ".", name).strip(".") or "default.unnamed"
