"""Tests of a login in a URL: it is sent to that URL's server and to no other host."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builder.errors import TransferError
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web
from builder.files.http_opener import open_url
from tests.doubles.loopback import listening

LOGIN = f"Basic {b64encode(b'user:p@ss word').decode()}"

Asked = list[tuple[str, str | None]]
"""The path and the header with a login of every request."""


@contextmanager
def served(asked: Asked, redirects: dict[str, str], header: str = "Authorization") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get(header)))
            target = redirects.get(self.path)
            self.send_response(302 if target else 200)
            self.send_header("Content-Length", "0" if target else "4")
            if target:
                self.send_header("Location", target)
            self.end_headers()
            self.wfile.write(b"" if target else b"body")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with listening(server) as url:
        yield url.removeprefix("http://")


@pytest.fixture
def web() -> Web:
    return Web(open=open_url, sleep=lambda seconds: None, progress=lambda done, total: None)


def test_a_login_goes_to_its_own_host_alone_also_behind_redirects(tmp_path: Path, web: Web) -> None:
    here: Asked = []
    elsewhere: Asked = []
    with (
        served(elsewhere, {}) as other,
        served(here, {"/first": "/second", "/second": f"http://{other}/third"}) as host,
    ):
        fetch(WantedFile(f"http://user:p%40ss%20word@{host}/first"), tmp_path / "part", web)
    assert here == [("/first", LOGIN), ("/second", LOGIN)]
    assert elsewhere == [("/third", None)]
    assert (tmp_path / "part").read_bytes() == b"body"


def test_a_login_that_a_redirect_holds_goes_to_the_host_that_it_is_for(tmp_path: Path, web: Web) -> None:
    here: Asked = []
    elsewhere: Asked = []
    with (
        served(elsewhere, {"/second": "/third"}) as other,
        served(here, {"/first": f"http://user:p%40ss%20word@{other}/second"}) as host,
    ):
        fetch(WantedFile(f"http://{host}/first"), tmp_path / "part", web)
    assert here == [("/first", None)]
    assert elsewhere == [("/second", LOGIN), ("/third", LOGIN)]


def test_a_proxys_login_goes_to_no_host_that_is_asked_without_it(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: behind a redirect from a proxied host to one of ``no_proxy``, that one got the login."""
    elsewhere: Asked = []
    with served(elsewhere, {}, header="Proxy-Authorization") as other:
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
def test_a_login_is_in_no_message_of_an_address_that_is_not_fetched(
    tmp_path: Path, web: Web, scheme: str, is_redirect: bool
) -> None:
    target = f"{scheme}://user:s3cret@far.example/x"
    with served([], {"/first": target}) as host, pytest.raises(TransferError) as told:
        fetch(WantedFile(f"http://{host}/first" if is_redirect else target), tmp_path / "part", web)
    assert f"{scheme}://…@far.example/x" in str(told.value)
    assert "s3cret" not in str(told.value)


def test_a_blank_and_an_umlaut_in_a_path_are_escaped(tmp_path: Path, web: Web) -> None:
    here: Asked = []
    with served(here, {}) as host:
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
    with pytest.raises(TransferError) as told:
        fetch(WantedFile(f"{scheme}://far.example/x"), tmp_path / "part", web)
    assert f"{scheme}://far.example/x: {scheme}_proxy is not a URL like http://PROXY:PORT." in str(told.value)
    assert "s3cret" not in str(told.value)
