"""Double of a registry with one repository, as far as images are pushed to it.

Sources: OCI's Distribution Specification, and Docker's specification of token authentication. Tests in
``tests/images`` send the same requests to Debian's ``docker-registry``.
"""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler
from itertools import count
from urllib.parse import parse_qs, urlsplit

from tests.doubles.loopback import LoopbackServer, QuietHandler

IMAGE = "application/vnd.docker.distribution.manifest.v2+json"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Served(LoopbackServer):
    """A registry with the repository ``owner/name``. ``login``: Basic, Bearer, or empty for none."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.login = ""
        self.anonymous = False
        """True if the token service gives tokens to read without a login."""
        self.token = "signed"
        self.realm = f"http://{self.host}/token"
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.uploads: set[str] = set()
        self.numbers = count(1)
        """Counter that names uploads."""
        self.storage = ""
        """URL of another host in the Location of uploads; empty: the registry itself."""
        self.logins: list[str] = []
        """Authorization header of each request, in order."""
        self.asked: list[str] = []
        """Requests to the token service: method, login and parameters."""
        self.faults: dict[str, str] = {}

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

    def fail(self, route: str, kind: str) -> None:
        """Let the next request of a route get a status, or ``expire``: the token becomes invalid.

        Routes: ping, token, manifest, put-manifest, blob, begin, finish (PUT of an upload).
        """
        self.faults[route] = kind


class Handler(QuietHandler, BaseHTTPRequestHandler):
    is_read = False

    @property
    def served(self) -> Served:
        assert isinstance(self.server, Served)
        return self.server

    def parse_request(self) -> bool:
        self.is_read = False
        return super().parse_request()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        name = path.rpartition("/")[2]
        if path == "/token":
            if self.passes("token"):
                self.give_token(f"GET {self.shown()} {sorted(parse_qs(urlsplit(self.path).query).items())}")
        elif "/manifests/" in path:
            if self.passes("manifest"):
                kind, data = self.served.manifests.get(name, ("", None))
                self.answer(200, kind, data) if data is not None else self.refuse(404, "MANIFEST_UNKNOWN")
        elif "/blobs/" in path:
            if self.passes("blob"):
                data = self.served.blobs.get(name)
                self.answer(200, data=data) if data is not None else self.refuse(404, "BLOB_UNKNOWN")
        elif self.passes("ping"):
            self.answer(200 if path == "/v2/" else 404)

    def do_POST(self) -> None:
        if self.path == "/token":
            self.give_token(f"POST {self.shown()} {sorted(parse_qs(self.body().decode()).items())}")
        elif self.passes("begin"):
            name = str(next(self.served.numbers))
            self.served.uploads.add(name)
            place = f"{self.served.storage}/v2/owner/name/blobs/uploads/{name}?state=0"
            self.answer(202, headers={"Location": place})

    def do_PUT(self) -> None:
        path = urlsplit(self.path).path
        if "/uploads/" in path:
            if self.passes("finish"):
                self.finish_upload(path.rpartition("/")[2])
        elif self.passes("put-manifest"):
            data = self.body()
            named = json.loads(data)
            wanted = [
                one["digest"] for one in (*named.get("layers", ()), *filter(None, [named.get("config")]))
            ]
            if missing := [one for one in wanted if one not in self.served.blobs]:
                self.refuse(404, "MANIFEST_BLOB_UNKNOWN", missing[0])
                return
            self.served.hold(path.rpartition("/")[2], self.headers["Content-Type"], data)
            self.answer(201)

    def finish_upload(self, upload: str) -> None:
        """Make the bytes of an upload a blob."""
        if upload not in self.served.uploads:
            self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
            return
        self.served.uploads.remove(upload)
        data = self.body()
        (named,) = parse_qs(urlsplit(self.path).query)["digest"]
        if named != digest(data):
            self.refuse(400, "DIGEST_INVALID")
            return
        self.served.blobs[named] = data
        self.answer(201)

    def passes(self, route: str) -> bool:
        """Return ``False`` if the login or a fault has ended the request."""
        fault = self.served.faults.pop(route, "")
        if fault == "expire":
            self.served.token += "+"
        elif fault:
            self.refuse(int(fault), {"429": "TOOMANYREQUESTS", "403": "DENIED"}.get(fault, "UNKNOWN"))
            return False
        return route == "token" or self.let_in()

    def let_in(self) -> bool:
        basic = f"Basic {base64.b64encode(b'ada:secret').decode()}"
        given = self.headers.get("Authorization", "")
        self.served.logins.append(given)
        wanted = {"Basic": basic, "Bearer": f"Bearer {self.served.token}"}
        if not self.served.login or given == wanted[self.served.login]:
            return True
        realm = f'realm="{self.served.realm}",' if self.served.realm else ""
        told = {"Basic": 'Basic realm="x"', "Bearer": f'Bearer {realm}service="images"'}
        self.answer(401, data=b"unauthorized", headers={"WWW-Authenticate": told[self.served.login]})
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

    def refuse(self, code: int, kind: str, message: str = "") -> None:
        errors = {"errors": [{"code": kind, "message": message}]}
        self.answer(code, "application/json", json.dumps(errors).encode())

    def body(self) -> bytes:
        """Return the request's body; ``b""`` if it was read before."""
        length = 0 if self.is_read else int(self.headers.get("Content-Length", 0))
        self.is_read = True
        return self.rfile.read(length)

    def answer(
        self, code: int, kind: str = "text/plain", data: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.body()
        self.respond(code, data, {"Content-Type": kind, **(headers or {})})
