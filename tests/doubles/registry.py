"""Double of a registry with one repository.

Sources: OCI's Distribution Specification, and Docker's specification of token authentication. Tests in
``tests/images`` send the same requests to Debian's ``docker-registry``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

IMAGE = "application/vnd.docker.distribution.manifest.v2+json"

ROUTES = "ping token manifest put-manifest look blob begin send status finish tags"
"""Names of requests: ``look`` is HEAD of a blob, ``send`` is PATCH and ``finish`` is PUT of an upload."""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class RegistryFault:
    """A fault of the next request of ``route``.

    Kinds for any route: a status (``500``), ``429`` (with Retry-After), ``hangup`` (no answer), ``expire``
    (the token becomes invalid), ``revoke`` (403 to every write from then on).

    ``begin``, ``send``, ``finish``, ``put-manifest``: ``landed`` (done, but 502), ``lost`` (done, but no
    answer).

    ``send``: ``cut`` (end after ``after`` bytes, which are kept), ``forget`` (the same, and the upload
    becomes unknown), ``corrupt`` (the last byte changes).

    ``blob``: ``cut``, ``corrupt``.
    """

    route: str
    kind: str
    skip: int = 0
    after: int = 0


class Served(ThreadingHTTPServer):
    """A registry with the repository ``owner/name``. ``login``: Basic, Bearer, or empty for none."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.login = ""
        self.anonymous = False
        """True if the token service gives tokens to read without a login."""
        self.token = "signed"
        self.realm = f"http://{self.host}/token"
        self.may_write = True
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.uploads: dict[str, bytearray] = {}
        self.numbers = count(1)
        """Counter that names uploads."""
        self.storage = ""
        """URL of another host in the Location of uploads; empty: the registry itself."""
        self.logins: list[str] = []
        """Authorization header of each request, in order."""
        self.page = 1000
        """Largest number of tags on a page of the list."""
        self.asked: list[str] = []
        """Requests to the token service: method, login and parameters."""
        self.requests: list[tuple[str, str]] = []
        """Route of each request, and its Range or Content-Range header."""
        self.faults: list[RegistryFault] = []
        self._lock = threading.Lock()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def image(self, tag: str, *layers: str) -> str:
        """Add an image with these layers' digests and return its digest."""
        config = json.dumps({"rootfs": {"type": "layers", "diff_ids": list(layers)}}).encode()
        self.blobs[digest(config)] = config
        named = {"config": {"digest": digest(config), "size": len(config)}}
        document = {**named, "layers": [{"digest": one, "size": 5} for one in layers]}
        return self.hold(tag, IMAGE, json.dumps(document).encode())

    def hold(self, tag: str, kind: str, data: bytes) -> str:
        for name in (tag, digest(data)):
            self.manifests[name] = (kind, data)
        return digest(data)

    def fail(self, route: str, kind: str, *, times: int = 1, skip: int = 0, after: int = 0) -> None:
        """Let ``times`` requests of a route fail with a fault of ``kind``, after ``skip`` good ones."""
        assert route in ROUTES.split()
        self.faults += [
            RegistryFault(route, kind, skip if number == 0 else 0, after) for number in range(times)
        ]

    def take(self, route: str) -> RegistryFault | None:
        """Remove and return the fault of a route's next request; ``None`` if the request is to succeed."""
        with self._lock:
            for fault in self.faults:
                if fault.route == route:
                    if fault.skip == 0:
                        self.faults.remove(fault)
                        return fault
                    fault.skip -= 1
                    return None
        return None

    def files(self, tag: str) -> dict[str, bytes] | None:
        """Return the files in the manifest of ``tag`` by title; ``None`` without a manifest."""
        if tag not in self.manifests:
            return None
        layers = json.loads(self.manifests[tag][1])["layers"]
        return {
            one["annotations"]["org.opencontainers.image.title"]: self.blobs[one["digest"]] for one in layers
        }

    def handle_error(self, *_: object) -> None:
        """Print no traceback for a broken connection, as tests kill clients."""


class Handler(BaseHTTPRequestHandler):
    """A handler whose connection stays open for the next request, as a registry's does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes, and Nagle's algorithm delays the second
    fault: RegistryFault | None = None
    is_read = False

    @property
    def served(self) -> Served:
        assert isinstance(self.server, Served)
        return self.server

    def parse_request(self) -> bool:
        self.fault, self.is_read = None, False
        return super().parse_request()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        name = path.rpartition("/")[2]
        if path == "/token":
            if self.passes("token"):
                self.give_token(f"GET {self.shown()} {sorted(parse_qs(urlsplit(self.path).query).items())}")
        elif "/uploads/" in path:
            self.on_upload(path, "status")
        elif "/manifests/" in path:
            if self.passes("manifest"):
                kind, data = self.served.manifests.get(name, ("", None))
                self.answer(200, kind, data) if data is not None else self.refuse(404, "MANIFEST_UNKNOWN")
        elif "/blobs/" in path:
            self.blob(name)
        elif path.endswith("/tags/list"):
            if self.passes("tags"):
                self.tags(parse_qs(urlsplit(self.path).query))
        elif self.passes("ping"):
            self.answer(200 if path == "/v2/" else 404)

    def do_HEAD(self) -> None:
        data = self.served.blobs.get(self.path.rpartition("/")[2])
        if self.passes("look"):
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()

    def do_POST(self) -> None:
        if self.path == "/token":
            self.give_token(f"POST {self.shown()} {sorted(parse_qs(self.body().decode()).items())}")
        elif self.passes("begin", write=True):
            name = str(next(self.served.numbers))
            self.served.uploads[name] = bytearray()
            self.told(202, name)

    def do_PATCH(self) -> None:
        self.on_upload(urlsplit(self.path).path, "send")

    def do_DELETE(self) -> None:
        self.served.uploads.pop(urlsplit(self.path).path.rpartition("/")[2], None)
        self.answer(204)

    def do_PUT(self) -> None:
        path = urlsplit(self.path).path
        if "/uploads/" in path:
            self.on_upload(path, "finish")
        elif self.passes("put-manifest", write=True):
            data = self.body()
            named = json.loads(data)
            wanted = [
                one["digest"] for one in (*named.get("layers", ()), *filter(None, [named.get("config")]))
            ]
            if missing := [one for one in wanted if one not in self.served.blobs]:
                self.refuse(404, "MANIFEST_BLOB_UNKNOWN", missing[0])
                return
            self.served.hold(path.rpartition("/")[2], self.headers["Content-Type"], data)
            self.done(201)

    def on_upload(self, path: str, route: str) -> None:
        name = path.rpartition("/")[2]
        if not self.passes(route, write=True):
            return
        kept = self.served.uploads.get(name)
        if kept is None:
            self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        elif route == "status":
            self.told(204, name)
        elif route == "send":
            self.take_bytes(name, kept)
        else:
            kept += self.body()
            (named,) = parse_qs(urlsplit(self.path).query)["digest"]
            del self.served.uploads[name]
            if named != digest(bytes(kept)):
                self.refuse(400, "DIGEST_INVALID")
                return
            self.served.blobs[named] = bytes(kept)
            self.done(201)

    def take_bytes(self, name: str, kept: bytearray) -> None:
        start = int(re.fullmatch(r"(\d+)-\d+", self.headers["Content-Range"])[1])  # type: ignore[index]
        if start != len(kept):
            self.refuse(416, "RANGE_INVALID")
            return
        kind = self.fault.kind if self.fault else ""
        if self.fault and kind in ("cut", "forget"):
            kept += self.rfile.read(min(self.fault.after, int(self.headers["Content-Length"])))
            self.close_connection = True
            if kind == "forget":
                del self.served.uploads[name]
            return
        kept += self.body()
        if kind == "corrupt":
            kept[-1] ^= 1
        self.done(202, name)

    def tags(self, asked: dict[str, list[str]]) -> None:
        """Answer with a page of the tags, as in the specification's section "Listing Tags"."""
        ours = sorted(name for name in self.served.manifests if ":" not in name)
        rest = [name for name in ours if name > asked.get("last", [""])[0]]
        page = rest[: min(int(asked.get("n", ["1000"])[0]), self.served.page)]
        more = {"Link": f'</v2/owner/name/tags/list?last={page[-1]}>; rel="next"'} if page != rest else {}
        self.answer(200, "application/json", json.dumps({"tags": page or None}).encode(), more)

    def blob(self, name: str) -> None:
        if not self.passes("blob"):
            return
        if name not in self.served.blobs:
            self.refuse(404, "BLOB_UNKNOWN")
            return
        data, kind = self.served.blobs[name], self.fault.kind if self.fault else ""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if kind == "corrupt":
            rest = rest[:-1] + bytes([rest[-1] ^ 1])
        self.close_connection = kind == "cut" or self.close_connection
        self.wfile.write(rest[: self.fault.after] if self.fault and kind == "cut" else rest)

    def passes(self, route: str, *, write: bool = False) -> bool:
        """Record the request; return ``False`` if the login or a fault has ended it."""
        span = self.headers.get("Range") or self.headers.get("Content-Range") or ""
        self.served.requests.append((route, span))
        self.fault = fault = self.served.take(route)
        if fault is not None and fault.kind == "expire":
            self.served.token += "+"
        if fault is not None and fault.kind == "revoke":
            self.served.may_write = False
        if fault is not None and fault.kind == "hangup":
            self.close_connection = True
            return False
        if fault is not None and fault.kind.isdigit():
            self.refuse(int(fault.kind), "TOOMANYREQUESTS" if fault.kind == "429" else "UNKNOWN")
            return False
        if route != "token" and not self.let_in():
            return False
        if write and not self.served.may_write:
            self.refuse(403, "DENIED", "requested access to the resource is denied")
            return False
        return True

    def let_in(self) -> bool:
        basic = f"Basic {base64.b64encode(b'ada:secret').decode()}"
        given = self.headers.get("Authorization", "")
        self.served.logins.append(given)
        wanted = {"Basic": basic, "Bearer": f"Bearer {self.served.token}"}
        if not self.served.login or given == wanted[self.served.login]:
            return True
        self.body()
        self.send_response(401)
        realm = f'realm="{self.served.realm}",' if self.served.realm else ""
        told = {
            "Basic": 'Basic realm="x"',
            "Bearer": f'Bearer {realm}service="images"',
        }
        self.send_header("WWW-Authenticate", told[self.served.login])
        self.send_header("Content-Length", "12")
        self.end_headers()
        self.wfile.write(b"unauthorized")
        return False

    def shown(self) -> str:
        """Return name and password of a request for a token, or its Authorization header if not Basic."""
        kind, _, basic = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(basic).decode() if kind == "Basic" else f"{kind} {basic}"

    def give_token(self, asked: str) -> None:
        self.served.asked.append(asked)
        good = "ada:secret" in asked or "['kept']" in asked or self.served.anonymous
        field = "access_token" if asked.startswith("POST") else "token"
        self.answer(200 if good else 401, "application/json", json.dumps({field: self.served.token}).encode())

    def told(self, code: int, name: str) -> None:
        """Answer with the state of an upload."""
        kept = len(self.served.uploads[name])
        place = f"{self.served.storage}/v2/owner/name/blobs/uploads/{name}?state={kept}"
        self.answer(code, headers={"Location": place, "Range": f"0-{max(kept - 1, 0)}"})

    def done(self, code: int, name: str = "") -> None:
        """Answer a write that was carried out; the faults ``lost`` and ``landed`` replace the answer."""
        kind = self.fault.kind if self.fault else ""
        if kind == "landed":
            self.refuse(502, "UNKNOWN")
        elif kind == "lost":
            self.close_connection = True
        else:
            self.told(code, name) if name else self.answer(code)

    def refuse(self, code: int, kind: str, message: str = "") -> None:
        errors = {"errors": [{"code": kind, "message": message}]}
        headers = {"Retry-After": "7"} if code == 429 else {}
        self.answer(code, "application/json", json.dumps(errors).encode(), headers)

    def body(self) -> bytes:
        """Return the request's body; ``b""`` if it was read before."""
        length = 0 if self.is_read else int(self.headers.get("Content-Length", 0))
        self.is_read = True
        return self.rfile.read(length)

    def answer(
        self, code: int, kind: str = "text/plain", data: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.body()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002
