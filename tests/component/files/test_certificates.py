"""Tests of the environment's certificates and proxies: which are trusted, and which failures are final."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builder.errors import TransferError
from builder.files.http_opener import trusted_certificates
from builder.io.transfer import HttpTransfer
from tests.doubles.loopback import listening
from tests.support.fakes.ports import FakeReporter
from tests.support.tls_server import make_certificate

BODY = b"body of a file"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


class Redirecting(Handler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path.lstrip("/"))
        self.send_header("Content-Length", "0")
        self.end_headers()


class RefusingProxy(Handler):
    def do_CONNECT(self) -> None:
        self.send_response(407)
        self.end_headers()

    do_GET = do_CONNECT  # noqa: N815 as http.server calls it


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    return make_certificate(tmp_path_factory.mktemp("tls"), "own")


@contextmanager
def https(certificate: Path, handler: type[Handler] = Handler) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with listening(server) as url:
        yield url.replace("http:", "https:")


def transfer(env: dict[str, str], waits: list[float]) -> HttpTransfer:
    return HttpTransfer(reporter=FakeReporter(), sleep=waits.append, env=env)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_named_certificate_is_trusted(certificate: Path, tmp_path: Path, name: str) -> None:
    with https(certificate) as url:
        transfer({name: str(certificate)}, []).download(f"{url}/x.deb", tmp_path / "x.deb")
    assert (tmp_path / "x.deb").read_bytes() == BODY


def test_without_one_an_unknown_certificate_is_final(certificate: Path, tmp_path: Path) -> None:
    waits: list[float] = []
    advice = r"CERTIFICATE_VERIFY_FAILED.* Check this machine's certificates and proxy\."
    with https(certificate) as url, pytest.raises(TransferError, match=advice):
        transfer({}, waits).download(f"{url}/x.deb", tmp_path / "x.deb")
    assert waits == []


def test_openssl_itself_reads_the_file_of_ssl_cert_file(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with https(certificate) as url:
        transfer({}, []).download(f"{url}/x.deb", tmp_path / "x.deb")
    assert (tmp_path / "x.deb").read_bytes() == BODY


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: bytes | None) -> None:
    bundle, waits = tmp_path / "own.pem", list[float]()
    if content is not None:
        bundle.write_bytes(content)
    with pytest.raises(TransferError, match=rf"no certificates can be read in {bundle}, which REQUESTS_CA"):
        transfer({"REQUESTS_CA_BUNDLE": str(bundle)}, waits).download("https://127.0.0.1:9/x", tmp_path / "x")
    assert waits == []


def test_requests_name_goes_before_curls() -> None:
    both = {"CURL_CA_BUNDLE": "/curl.pem", "REQUESTS_CA_BUNDLE": "/requests.pem"}
    assert trusted_certificates(both) == Path("/requests.pem")
    assert trusted_certificates({**both, "REQUESTS_CA_BUNDLE": ""}) == Path("/curl.pem")
    assert trusted_certificates({}) is None


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("https", r"Tunnel connection failed: 407 .* Check this machine's certificates and proxy\."),
        ("http", r"HTTP 407 .* It may be private, or a proxy refuses it\. A proxy's goes into https_proxy"),
    ],
)
def test_a_proxy_that_refuses_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, said: str
) -> None:
    waits: list[float] = []
    with listening(ThreadingHTTPServer(("127.0.0.1", 0), RefusingProxy)) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(TransferError, match=said):
            transfer({}, waits).download(f"{scheme}://files.example/x.deb", tmp_path / "x.deb")
    assert waits == []


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_redirect_from_https_to_http_is_refused(certificate: Path, tmp_path: Path, scheme: str) -> None:
    """Defect: behind an address that begins with HTTPS:// it was followed."""
    env = {"REQUESTS_CA_BUNDLE": str(certificate)}
    with (
        https(certificate, Redirecting) as url,
        listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as plain,
    ):
        safe = f"{scheme}{url.removeprefix('https')}/{plain}/x.deb"
        with pytest.raises(TransferError, match=r"redirects to http://.*, which is not encrypted"):
            transfer(env, []).download(safe, tmp_path / "x.deb")
    assert not (tmp_path / "x.deb").exists()
