"""Servers of a folder with a folder for each host: as the hosts themselves, and as a proxy before them.

What a host does wrong is done to its folder: a missing file is a 404, a file may hold HTML, a repository's
tag can be moved. Only a status needs a file of its own: ``NAME.status`` beside a file has a status in each
line, and each request takes the first.
"""

import json
import os
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.doubles.loopback import QuietFiles, listening

REGISTRY = "/v2/"
"""The beginning of a registry's paths, whose errors are JSON."""

_OWN = ("connection", "transfer-encoding", "content-length", "date", "server")
"""Headers that a relay writes itself."""


@dataclass
class Sites:
    """The hosts whose folders are in ``folder``."""

    folder: Path
    certificate: ssl.SSLContext | None = None
    upstreams: Mapping[str, str] = field(default_factory=dict)
    """URLs of the servers that answer for hosts without a folder."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def knows(self, host: str) -> bool:
        return host in self.upstreams or (self.folder / host).is_dir()

    @property
    def log(self) -> Path:
        """The file with a line for each request: method, host and path."""
        return self.folder.with_name("requests.log")

    def requests(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def fail(self, where: str, *statuses: int) -> None:
        """Let the next requests of ``where``, a host and path, have these statuses."""
        file = self.folder / f"{where}.status"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{status}\n" for status in statuses), encoding="ascii")

    def take_status(self, where: str) -> int:
        """Remove and return the status of the next request; 0 if it is to succeed."""
        file = self.folder / f"{where}.status"
        with self.lock:
            lines = file.read_text(encoding="ascii").split() if file.is_file() else []
            if lines:
                file.write_text("".join(f"{line}\n" for line in lines[1:]), encoding="ascii")
        return int(lines[0]) if lines else 0


class SiteServer(ThreadingHTTPServer):
    """A server of sites on a port; with ``tls`` every connection begins with TLS."""

    def __init__(self, sites: Sites, address: tuple[str, int], *, tls: bool = False) -> None:
        self.sites, self.tls = sites, tls
        super().__init__(address, SiteHandler)

    def handle_error(self, *_: object) -> None:
        """Print no traceback for a broken connection: clients refuse certificates and are killed."""


class SiteHandler(QuietFiles):
    """A handler of a host's files, of its git repositories, and of CONNECT.

    A host that the double does not know is reached as it is.
    """

    protocol_version = "HTTP/1.1"
    connected = ""
    """The host that CONNECT named."""

    @property
    def sites(self) -> Sites:
        assert isinstance(self.server, SiteServer)
        return self.server.sites

    def setup(self) -> None:
        super().setup()
        assert isinstance(self.server, SiteServer)
        if self.server.tls:
            self._begin_tls()

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def _begin_tls(self) -> None:
        assert self.sites.certificate
        self.connection = self.sites.certificate.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)

    def do_CONNECT(self) -> None:  # noqa: N802 as http.server calls it
        host, _, port = self.path.rpartition(":")
        if status := self.sites.take_status(f"{host}/CONNECT"):
            self.send_error(status)
        elif self.sites.knows(host):
            self.send_response(200)
            self.end_headers()
            self.connected = host
            self._begin_tls()
            self.close_connection = False
        else:
            self._tunnel(host, int(port))

    def _tunnel(self, host: str, port: int) -> None:
        self.close_connection = True
        try:
            far = socket.create_connection((host, port), timeout=30)
        except OSError as error:
            self.send_error(502, str(error))
            return
        with far:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: far, far: self.connection}
            while True:
                for end in select.select([*ends], [], [])[0]:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    ends[end].sendall(data)

    def _serve(self) -> None:
        sites = self.sites
        parts = urlsplit(self.path)
        host = self.connected or parts.hostname or self.headers.get("Host", "").partition(":")[0]
        where = f"{host}{unquote(parts.path)}"
        with sites.lock, sites.log.open("a", encoding="utf-8") as log:
            log.write(f"{self.command} {where}\n")
        self.directory = str(sites.folder / host)
        if status := sites.take_status(where.rstrip("/")):
            self.send_error(status)
        elif host in sites.upstreams:
            self._relay(sites.upstreams[host])
        elif parts.path.endswith(("/info/refs", "/git-upload-pack")):
            self._git(parts.path, parts.query)
        elif self.command == "HEAD":
            super().do_HEAD()
        else:
            super().do_GET()

    do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 as http.server calls them

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error as a web server does, or as a registry does."""
        if not self.path.startswith(REGISTRY) and code != 429:
            super().send_error(code, message, explain)
            return
        known = {429: ("TOOMANYREQUESTS", "You have reached your pull rate limit.")}
        kind, words = known.get(code, ("MANIFEST_UNKNOWN", "manifest unknown"))
        body = json.dumps({"errors": [{"code": kind, "message": words}]}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _git(self, path: str, query: str) -> None:
        """Answer by ``git http-backend``, a CGI program."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        argv = ["git", "http-backend"]
        with subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as backend:
            assert backend.stdin
            assert backend.stdout
            backend.stdin.write(body)
            backend.stdin.close()
            head = dict(
                line.decode().rstrip().split(": ", 1) for line in iter(backend.stdout.readline, b"\r\n")
            )
            self.send_response(int(head.pop("Status", "200").partition(" ")[0]))
            for name, value in {**head, "Transfer-Encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
            while data := backend.stdout.read(1 << 20):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

    def _relay(self, upstream: str) -> None:
        near = HTTPConnection(urlsplit(upstream).netloc, timeout=30)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        near.request(self.command, self.path, body, dict(self.headers))
        response = near.getresponse()
        content = response.read()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        near.close()


@contextmanager
def proxy(sites: Sites) -> Iterator[str]:
    """Run a proxy that leads to ``sites``, and yield its URL."""
    with listening(SiteServer(sites, ("127.0.0.1", 0))) as url:
        yield url
