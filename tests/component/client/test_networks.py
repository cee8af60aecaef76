"""Tests of the client where only a proxy is in reach and a CA of one's own has signed the server."""

from __future__ import annotations

import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.doubles.loopback import QuietFiles, listening
from tests.doubles.release import FILES, write_release
from tests.support import ROOT

HOST = "releases.example.invalid"
"""Name of the server, which only the proxy resolves."""

DOWNLOAD_FAILED = 10


class Proxy(ThreadingHTTPServer):
    """A proxy that knows CONNECT alone, and leads to one server."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.port, self.asked = port, list[str]()


class Tunnel(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        proxy = self.server
        assert isinstance(proxy, Proxy)
        proxy.asked.append(self.path)
        with socket.create_connection(("127.0.0.1", proxy.port)) as there:
            self.send_response(200)
            self.end_headers()
            other = {self.connection: there, there: self.connection}
            while True:
                for side in select.select(list(other), [], [])[0]:
                    if not (data := side.recv(65536)):
                        return
                    other[side].sendall(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``ca.crt``, and ``server.pem`` with key and certificate, which the CA signed."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("ca")
    new = [openssl, "req", "-newkey", "rsa:2048", "-nodes"]
    sign = [openssl, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", "2"]
    (folder / "names").write_text(f"subjectAltName=DNS:{HOST}")
    for argv in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=a company's CA", "-keyout", "ca.key", "-out", "ca.crt"],
        [*new, "-subj", f"/CN={HOST}", "-keyout", "server.key", "-out", "server.csr"],
        [*sign, "-CAcreateserial", "-extfile", "names", "-out", "server.crt"],
    ):
        subprocess.run(argv, cwd=folder, capture_output=True, check=True)
    (folder / "server.pem").write_bytes(
        (folder / "server.key").read_bytes() + (folder / "server.crt").read_bytes()
    )
    return folder


@pytest.fixture
def proxy(authority: Path, tmp_path: Path) -> Iterator[Proxy]:
    """Yield a running proxy to a TLS server of a release."""
    write_release(tmp_path / "release")
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(tmp_path / "release")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem")
    served.socket = context.wrap_socket(served.socket, server_side=True)
    with listening(served), Proxy(served.server_address[1]) as running, listening(running):
        yield running


def client(home: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m builder.client`` with these variables and a made-up card."""
    fixed = {"PATH": os.environ["PATH"], "ORTPACKS_FORCE_CC": "5.2", "ORTPACKS_FORCE_DRIVER": "550.54.14"}
    argv = [sys.executable, "-m", "builder.client", *words]
    env = {**fixed, "HOME": str(home), "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("variable", "bundle"),
    [
        ("https_proxy", "SSL_CERT_FILE"),
        ("HTTPS_PROXY", "REQUESTS_CA_BUNDLE"),
        ("https_proxy", "CURL_CA_BUNDLE"),
    ],
)
def test_it_installs_through_the_proxy(
    proxy: Proxy, authority: Path, tmp_path: Path, variable: str, bundle: str
) -> None:
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    env = {variable: address, bundle: str(authority / "ca.crt")}
    place = ("--index", f"https://{HOST}/index.json", "--prefix", str(tmp_path / "prefix"))
    done = client(tmp_path, env, "install", *place)
    assert done.returncode == 0, done.stderr
    host = "lib/libonnxruntime.so.1"
    assert (tmp_path / "prefix" / "current" / host).read_bytes() == FILES[host]
    assert set(proxy.asked) == {f"{HOST}:443"}


def test_detect_asks_no_server_and_a_ca_that_nobody_named_is_refused_with_advice(
    proxy: Proxy, tmp_path: Path
) -> None:
    index = f"https://{HOST}/index.json"
    named = {"https_proxy": f"http://127.0.0.1:{proxy.server_address[1]}", "ORTPACKS_INDEX": index}
    assert client(tmp_path, named, "detect").returncode == 0
    assert proxy.asked == []
    done = client(tmp_path, named, "select")
    assert done.returncode == DOWNLOAD_FAILED
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    assert "Check this machine's certificates and proxy." in done.stderr
