"""Tests of downloads: where a login goes, which certificates are trusted, and what is gone on with."""

import random
import shutil
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from builder.errors import IntegrityError, TransferError
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web
from builder.files.http_opener import open_url, trusted_certificates
from builder.io.transfer import HttpTransfer
from tests.doubles.fileserver import FileServer, serve
from tests.doubles.loopback import LoopbackServer, QuietHandler, listening
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter
from tests.support.tls_server import make_certificate

LOGIN = f"Basic {b64encode(b'user:p@ss word').decode()}"

NOWHERE: Mapping[str, str] = MappingProxyType({})

Asked = list[tuple[str, str | None]]
"""The path and the header with a login of every request."""


@contextmanager
def served(
    asked: Asked,
    redirects: Mapping[str, str] = NOWHERE,
    *,
    header: str = "Authorization",
    by: Path | None = None,
) -> Iterator[str]:
    """Serve ``body`` under every path, or a redirect, ``by`` a certificate or none; return host and port."""

    class OneHandler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 as http.server calls it
            asked.append((self.path, self.headers.get(header)))
            target = redirects.get(self.path)
            proxied = self.path.startswith("http://files.example/")
            self.respond(407 if proxied else 302 if target else 200, b"body", {"Location": target or ""})

        def do_CONNECT(self) -> None:  # noqa: N802 as http.server calls it
            self.respond(407, b"")

    server = LoopbackServer(OneHandler)
    if by:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(by, by.with_suffix(".key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with listening(server) as url:
        yield url.removeprefix("http://")


@pytest.fixture
def told() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def web(told: list[tuple[int, int]]) -> Web:
    return Web(
        open=open_url, sleep=lambda seconds: None, progress=lambda done, total: told.append((done, total))
    )


def test_a_login_goes_to_the_host_that_it_is_for_also_behind_redirects(tmp_path: Path, web: Web) -> None:
    here: Asked = []
    elsewhere: Asked = []
    redirects = {"/first": "/second", "/fifth": "/sixth"}
    with served(elsewhere, redirects) as other:
        redirects = {"/first": "/second", "/second": f"http://{other}/third"}
        redirects["/fourth"] = f"http://user:p%40ss%20word@{other}/fifth"
        with served(here, redirects) as host:
            fetch(WantedFile(f"http://user:p%40ss%20word@{host}/first"), tmp_path / "part", web)
            fetch(WantedFile(f"http://{host}/fourth"), tmp_path / "other", web)
    assert here == [("/first", LOGIN), ("/second", LOGIN), ("/fourth", None)]
    assert elsewhere == [("/third", None), ("/fifth", LOGIN), ("/sixth", LOGIN)]
    assert (tmp_path / "part").read_bytes() == b"body"


def test_only_a_proxy_gets_a_proxys_login(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: behind a redirect from a proxied host to one of ``no_proxy``, that one got the login."""
    elsewhere: Asked = []
    with served(elsewhere, header="Proxy-Authorization") as other:
        proxied: Asked = []
        far = "http://far.example/first"
        with served(proxied, {far: f"http://{other}/second"}, header="Proxy-Authorization") as proxy:
            monkeypatch.setenv("http_proxy", f"http://user:p%40ss%20word@{proxy}")
            monkeypatch.setenv("no_proxy", other.partition(":")[0])
            fetch(WantedFile(far), tmp_path / "part", web)
    assert proxied == [(far, LOGIN)]
    assert elsewhere == [("/second", None)]


@pytest.mark.parametrize("scheme", ["ftp", "gopher"])
@pytest.mark.parametrize("is_redirect", [False, True])
def test_no_login_is_in_a_refused_address(tmp_path: Path, web: Web, scheme: str, is_redirect: bool) -> None:
    target = f"{scheme}://user:s3cret@far.example/x"
    with served([], {"/first": target}) as host, pytest.raises(TransferError) as caught:
        fetch(WantedFile(f"http://{host}/first" if is_redirect else target), tmp_path / "part", web)
    assert f"{scheme}://…@far.example/x" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_blank_and_an_umlaut_in_a_path_are_escaped(tmp_path: Path, web: Web) -> None:
    here: Asked = []
    with served(here) as host:
        fetch(WantedFile(f"http://{host}/größe 1%2B.whl"), tmp_path / "part", web)
    assert here == [("/gr%C3%B6%C3%9Fe%201%2B.whl", None)]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "proxy", ["http:/user:s3cret@127.0.0.1:9", "http://user:s3cret", "http://s3cret@[::1]:x"]
)
def test_a_malformed_proxy_is_named_by_its_variable_and_its_login_is_in_no_message(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, scheme: str, proxy: str
) -> None:
    """Defect: the message said that the file's address cannot be opened, and had the proxy's password."""
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(TransferError) as caught:
        fetch(WantedFile(f"{scheme}://far.example/x"), tmp_path / "part", web)
    assert f"{scheme}://far.example/x: {scheme}_proxy is not a URL like http://PROXY:PORT." in str(
        caught.value
    )
    assert "s3cret" not in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    return make_certificate(tmp_path_factory.mktemp("tls"), "own")


def download(url: str, folder: Path, env: Mapping[str, str] = NOWHERE) -> bytes:
    """Return what an address gives; the first failure is final."""
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=lambda _: pytest.fail("again"), env=env)
    transfer.download(url, folder / "x.deb")
    return (folder / "x.deb").read_bytes()


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_named_certificate_is_trusted(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """OpenSSL itself reads the file of ``SSL_CERT_FILE``."""
    monkeypatch.setenv(name, str(certificate))
    with served([], by=certificate) as host:
        assert download(f"https://{host}/x.deb", tmp_path, {name: str(certificate)}) == b"body"


def test_without_one_an_unknown_certificate_is_final(certificate: Path, tmp_path: Path) -> None:
    advice = r"CERTIFICATE_VERIFY_FAILED.* Check this machine's certificates and proxy\."
    with served([], by=certificate) as host, pytest.raises(TransferError, match=advice):
        download(f"https://{host}/x.deb", tmp_path)


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: bytes | None) -> None:
    bundle = tmp_path / "own.pem"
    if content is not None:
        bundle.write_bytes(content)
    with pytest.raises(TransferError, match=rf"no certificates can be read in {bundle}, which REQUESTS_CA"):
        download("https://127.0.0.1:9/x", tmp_path, {"REQUESTS_CA_BUNDLE": str(bundle)})


def test_the_client_trusts_a_named_certificate_alone(certificate: Path, tmp_path: Path) -> None:
    named = {"REQUESTS_CA_BUNDLE": str(certificate)}
    with served([], by=certificate) as host:
        argv = [sys.executable, "-m", "builder.client", "select", "--index", f"https://{host}/index.json"]
        for more, said in (({}, "CERTIFICATE_VERIFY_FAILED"), (named, "index.json is not JSON")):
            env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ORTPACKS_FORCE_CC": "8.6", **more}
            done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
            assert (said in done.stderr, "VERIFY_FAILED" in done.stderr) == (True, not more), done.stderr


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
    monkeypatch.delenv("no_proxy", raising=False)
    with served([]) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://{proxy}")
        with pytest.raises(TransferError, match=said):
            download(f"{scheme}://files.example/x.deb", tmp_path)


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_redirect_from_https_to_http_is_refused(certificate: Path, tmp_path: Path, scheme: str) -> None:
    """Defect: behind an address that begins with HTTPS:// it was followed."""
    env = {"REQUESTS_CA_BUNDLE": str(certificate)}
    said = r"redirects to http://.*, which is not encrypted"
    with (
        served([]) as plain,
        served([], {"/x": f"http://{plain}/x"}, by=certificate) as host,
        pytest.raises(TransferError, match=said),
    ):
        download(f"{scheme}://{host}/x", tmp_path, env)
    assert not (tmp_path / "x.deb").exists()


BODY = random.Random(7).randbytes(1 << 20)  # noqa: S311 any bytes do


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve(FileServer({"x.whl": BODY})) as running:
        yield running


@pytest.mark.parametrize(
    ("etag", "second"), [('"one"', f"bytes={len(BODY) // 2}-"), ("", ""), ('W/"one"', "")]
)
def test_what_broke_off_is_gone_on_with_by_a_strong_etag_alone(
    server: FileServer, web: Web, tmp_path: Path, told: list[tuple[int, int]], etag: str, second: str
) -> None:
    server.cuts, server.etag = 1, etag
    fetch(WantedFile(f"{server.url}/x.whl"), tmp_path / "part", web)
    assert (tmp_path / "part").read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == ["", second]
    assert told[-1] == (len(BODY), len(BODY))


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        ({"size": 7}, rf"wanted: 7 bytes\n    got:    {len(BODY)} bytes"),
        ({"size": len(BODY), "sha256": "0" * 64}, "0000"),
        ({"size": 2 * len(BODY)}, rf"wanted: {2 * len(BODY)} bytes"),
    ],
)
def test_other_bytes_than_promised_are_refused_and_a_login_in_the_address_is_in_no_message(
    server: FileServer, web: Web, tmp_path: Path, promised: dict[str, object], said: str
) -> None:
    url = server.url.replace("://", "://user:s3cret@")
    with pytest.raises(IntegrityError, match=said) as caught:
        fetch(WantedFile(f"{url}/x.whl", **promised), tmp_path / "part", web)  # type: ignore[arg-type]
    assert "…@127.0.0.1" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
