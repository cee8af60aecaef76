"""Data of the GitHub double and handling of requests on both hosts. See ``tests.doubles.github``."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.github_required_keys import REJECTED
from tests.doubles.loopback import QuietHandler

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
    """A fault of the next request of ``route``, which is the name of a handler's method.

    Routes: ``access``, ``newest``, ``tag``, ``list``, ``create``, ``assets``, ``asset``, ``upload``,
    ``delete``, ``publish`` (any PATCH), ``immutable`` (the setting), ``ref`` (of a tag).

    Kinds for any route: a status (``500``, ``502``, ``401`` ...), ``502-cut`` (502 with half of its body),
    ``hangup`` (no answer), ``retry-after`` (403 with the seconds to wait), ``429`` (the same with 429),
    ``429-bare`` (429 without a time), ``503-later`` (503 with seconds), ``date`` (429 with a date),
    ``reset`` (403, used-up rate limit), ``secondary`` (403, secondary rate limit), ``echo`` (422 that
    repeats the token), ``moved`` (307 to the other host), ``half`` (half of an answer), ``other`` (an answer
    of another form), ``revoke`` (401, and another token is valid from then on), ``down`` (both ports refuse
    connections from then on).

    Publish: ``meddle`` (another client
    removes an asset just before), ``meddle-more`` (another client adds one), ``mutable`` (the release does
    not become immutable), ``immutable-late`` (the release becomes immutable, but the answer denies it).
        Publish, ref: ``move`` (another client moves the tag just before).

    Create, publish, upload, delete:
    ``landed`` (done, but 502), ``lost`` (done, but no answer).

    Upload: ``cut`` (end after ``after`` bytes),
    ``cut-starter`` (the same, with an asset in the state "starter"), ``starter`` (502, asset in the state
    "starter"), ``race`` and ``race-other`` (422: another client was faster with the same or other bytes),
    ``corrupt`` (other bytes are stored), ``wrong-digest`` (in the answer alone), ``no-digest``,
    ``late-digest`` (none in the answer alone), ``truncated`` (half of the answer 201).

    Asset: ``cut`` after ``after`` bytes, ``corrupt``, ``direct`` (200 instead of 302).
    """

    route: str
    kind: str
    after: int = 0
    seconds: int = 7
    skip: int = 0
    """Number of the route's requests that succeed before the fault."""


@dataclass
class Seen:
    """A request that the double received."""

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
    """Commit or branch on which the tag is created if it does not exist."""
    immutable: bool = False
    prerelease: bool = False
    order: int = 0
    """Number that is higher for a release made the newest later; ``latest`` compares it."""
    assets: dict[int, StoredAsset] = field(default_factory=dict)


Sought = TypeVar("Sought")


class NotFoundError(Exception):
    """The answer is 404."""


def known(value: Sought | None) -> Sought:
    """Return ``value``. Raises ``NotFoundError`` if there is none."""
    if value is None:
        raise NotFoundError
    return value


class Handler(QuietHandler, BaseHTTPRequestHandler):
    """A handler that logs a request and calls the method of its route, unless a fault answers."""

    routes: ClassVar[tuple[Route, ...]] = ()

    @property
    def double(self) -> GitHubDouble:
        return cast("Server", self.server).double

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

    do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _dispatch  # noqa: N815 as http.server calls them

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
        try:
            return cast("None", getattr(self, route.name)(**found))
        except NotFoundError:
            return self.answer(404, {"message": "Not Found"})

    def _refuse(self, fault: Fault) -> bool:
        """Answer with a fault of a kind for any route; ``False``: another kind, no answer."""
        if fault.kind in ("hangup", "down"):
            self.double.down() if fault.kind == "down" else None
            self.hang_up()
        elif fault.kind == "moved":
            self.answer(307, {}, {"Location": f"{self.double.storage.url}/elsewhere"})
        elif fault.kind == "half":
            self.answer(200, '{"full_na')
        elif fault.kind == "other":
            self.answer(200, {} if fault.route == "list" else [])
        elif fault.kind == "502-cut":
            self.read_body()
            self.send_response(502)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"<html>")
            self.hang_up()
        elif (refusal := self._refusal(fault)) is not None:
            status, message, headers = refusal
            self.answer(status, {"message": message}, headers)
        else:
            return False
        return True

    def _refusal(self, fault: Fault) -> tuple[int, str, dict[str, str]] | None:
        now = time.time()
        if fault.kind == "revoke":
            self.double.token = "ghp_theNextTokenOfTheDouble"
        kinds: dict[str, tuple[int, str, dict[str, str]]] = {
            "retry-after": (403, "Slow down", {"Retry-After": str(fault.seconds)}),
            "429": (429, "Slow down", {"Retry-After": str(fault.seconds)}),
            "date": (429, "Slow down", {"Retry-After": formatdate(now + fault.seconds, usegmt=True)}),
            "reset": (
                403,
                "API rate limit exceeded",
                {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(now) + fault.seconds)},
            ),
            "429-bare": (429, "Too many requests", {}),
            "503-later": (503, "Unavailable", {"Retry-After": str(fault.seconds)}),
            "secondary": (403, "You have exceeded a secondary rate limit.", {}),
            "echo": (422, f"cannot use {self.headers['Authorization']}", {}),
            "revoke": (401, "Bad credentials", {}),
        }
        if fault.kind.isdigit() and fault.kind not in kinds:
            return int(fault.kind), f"Resource said {fault.kind}", {}
        return kinds.get(fault.kind)

    def done(self, status: int, body: object = None) -> None:
        """Answer a write that was carried out; the faults ``lost`` and ``landed`` replace the answer."""
        kind = self.fault.kind if self.fault else ""
        if kind == "lost":
            self.read_body()
            return self.hang_up()
        if kind == "landed":
            return self.answer(502, {"message": "Bad Gateway"})
        return self.answer(status, body)

    def answer(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        self.read_body()
        page = isinstance(body, str)
        data = body.encode() if isinstance(body, str) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 204:
            kind = "text/html" if page else "application/json"
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_file(self, file: Path, start: int = 0) -> None:
        """Send a file's bytes from ``start`` on.

        The fault ``cut`` ends the body after its number of bytes, ``corrupt`` changes the first byte.
        """
        size = file.stat().st_size
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        if self.command != "HEAD":
            self._send_bytes(file, start)

    def _send_bytes(self, file: Path, start: int) -> None:
        kind = self.fault.kind if self.fault else ""
        left = self.fault.after if self.fault and kind == "cut" else file.stat().st_size
        with file.open("rb") as stream:
            stream.seek(start)
            if kind == "corrupt":
                self.wfile.write(bytes([stream.read(1)[0] ^ 1]))
            while block := stream.read(min(_BLOCK, left)):
                self.wfile.write(block)
                left -= len(block)
        if kind == "cut":
            self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True

    def read_body(self, target: Path | None = None, limit: int | None = None) -> bytes:
        """Read the rest of the request's body, at most ``limit`` bytes.

        Returns the bytes, or writes them to ``target`` and returns ``b""``.
        """
        wanted = self.left if limit is None else min(limit, self.left)
        data = self.rfile.read(wanted)
        self.left -= len(data)
        if target is None:
            return data
        target.write_bytes(data)
        return b""

    def read_json(self) -> dict[str, Any] | None:
        """Return the request's body; ``None``, without an answer, if the client sent only a part of it."""
        data = self.read_body()
        if self.left:
            self.hang_up()
            return None
        value: dict[str, Any] = json.loads(data)
        return value

    def find(self, number: str) -> StoredRelease | None:
        """Return the release; with the fault ``gone`` another client has deleted it just before."""
        if self.fault and self.fault.kind == "gone":
            self.double.releases.pop(int(number), None)
        return self.double.releases.get(int(number))

    def find_asset(self, number: str) -> tuple[StoredRelease, StoredAsset]:
        for release in self.double.releases.values():
            if int(number) in release.assets and (self.authorized or not release.draft):
                return release, release.assets[int(number)]
        raise NotFoundError

    def invalid(self, resource: str, code: str, field: str = "tag_name") -> None:
        errors = [{"resource": resource, "code": code, "field": field}]
        self.answer(422, {"message": "Validation Failed", "errors": errors, **REJECTED})

    def page(self, items: list[dict[str, object]]) -> None:
        size = int(self.query.get("per_page", ["30"])[0])
        start = (int(self.query.get("page", ["1"])[0]) - 1) * size
        self.answer(200, items[start : start + size])


def renamed(name: str) -> str:
    """Return the name that GitHub gives to an asset: each special character becomes a dot."""
    return re.sub(r"[^A-Za-z0-9._+@-]", ".", name).strip(".") or "default.unnamed"
