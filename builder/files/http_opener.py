"""This module opens http and https URLs through urllib: with proxy, login, certificates and a least speed.

Proxies are those of the environment. No redirect leads from https to http, a login in a URL is sent to no
other host, and reading from a server that sends too little of the body raises ``TooSlowError``. What is not
the body (status lines, headers, chunk sizes, trailers) has a limit. OpenSSL itself reads ``SSL_CERT_FILE``
and ``SSL_CERT_DIR``.
"""

from __future__ import annotations

import io
import time
import urllib.request
from base64 import b64encode
from functools import partial
from http.client import HTTPConnection, HTTPMessage, HTTPResponse, InvalidURL
from math import inf
from pathlib import Path
from typing import IO, Callable, Dict, List, Mapping, Optional, Tuple, Type
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from builder.errors import TransferError

TIMEOUT_SECONDS = 30.0

_LOGIN = "Authorization"

_LEFT_ALONE = "!#$%&'()*+,/:;=?@[]~"
"""The characters that are not escaped in a URL, besides letters, digits and ``_.-~``."""

WINDOW_SECONDS = 30.0

LEAST_BYTES = 30 * 1024
"""The least bytes of a body in ``WINDOW_SECONDS``: 1 KiB/s, at which a package would take weeks."""

_MOST_LINES, _MOST_PER_BYTE = 2**18, 16
"""The most bytes of lines around a body: 256 KiB, and 16 for each byte of the body (a chunk may be small)."""

Clock = Callable[[], float]
"""A function that returns seconds since any fixed moment."""


Open = Callable[[str, Dict[str, str]], HTTPResponse]
"""A function that sends a request for a URL with headers and returns the response."""


def trusted_certificates(env: Mapping[str, str]) -> Optional[Path]:
    """Return the file or folder with the only certificates to trust, by requests' and curl's variables.

    ``None`` where the environment names none: then the system's, or those of ``SSL_CERT_FILE``, are trusted.
    """
    named = env.get("REQUESTS_CA_BUNDLE") or env.get("CURL_CA_BUNDLE")
    return Path(named) if named else None


def open_url(
    url: str, headers: Dict[str, str], clock: Clock = time.monotonic, certificates: Optional[Path] = None
) -> HTTPResponse:
    """Send a request through the environment's proxies and return its response.

    Reading the response raises ``TooSlowError``. A login in ``url`` is sent to no other host.
    ``certificates`` is the result of ``trusted_certificates``. Raises ``HTTPError`` for 4xx and 5xx,
    ``URLError`` and other ``OSError`` for the network, ``ValueError`` for a malformed URL.
    """
    _require_http(url)
    bare, login = _without_login(quote(url, safe=_LEFT_ALONE))
    request = urllib.request.Request(bare, headers={"User-Agent": "ortpacks", **headers})  # noqa: S310 checked
    if login:
        request.add_unredirected_header(_LOGIN, login)
    own = (kind(clock, certificates) for kind in _KINDS)
    opener = urllib.request.build_opener(_Proxies(), _Redirects(), *own)
    response: HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
    return response


def limit_connections(most: int) -> None:
    """Give each HTTP connection of this process, in which pip runs, the limits of ``open_url``.

    A body of more than ``most`` bytes raises ``TransferError``.
    """
    kind = partial(_PacedResponse, time.monotonic, "The package index", most)
    HTTPConnection.response_class = staticmethod(kind)  # type: ignore[assignment]  # it is called


def _without_login(url: str) -> Tuple[str, str]:
    """Return the URL without ``user:password@``, and the login as a header's value; empty without one."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, ""
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    basic = f"Basic {b64encode(unquote(f'{user}:{password}').encode()).decode()}"
    return urlunsplit(parts._replace(netloc=host)), basic


def _require_http(url: str) -> None:
    """Raise ``URLError`` for a scheme other than http and https, ``ValueError`` for an invalid port."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise URLError(f"{url}: only http and https are fetched")
    _ = parts.port


def _require_followable(url: str, target: str) -> None:
    """Raise ``URLError`` or ``ValueError`` for a redirect from ``url`` that is not followed."""
    if urlsplit(url).scheme == "https" != urlsplit(target).scheme:  # the user may write HTTPS://
        raise URLError(f"{url} redirects to {target}, which is not encrypted")
    _require_http(target)


class _Proxies(urllib.request.ProxyHandler):
    """A handler for the environment's proxies, which names a malformed one by its variable.

    urllib's own error may have the proxy's login, and is reported as one of the URL.
    """

    def proxy_open(
        self,
        req: urllib.request.Request,
        proxy: str,
        type: str,  # noqa: A002 urllib's own name
    ) -> Optional[HTTPResponse]:
        """Send the request through ``proxy``, as urllib does. Raises ``URLError``."""
        host = req.host
        try:
            answer: Optional[HTTPResponse] = super().proxy_open(req, proxy, type)
            if req.host != host:
                HTTPConnection(req.host)  # its port is read, nothing is sent
        except (ValueError, InvalidURL):
            raise URLError(f"{type}_proxy is not a URL like http://PROXY:PORT") from None
        return answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects from https to http, because an index is trusted by its connection."""

    def http_error_308(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,  # noqa: ARG002 urllib before Python 3.11 refuses this one
        msg: str,
        headers: HTTPMessage,
    ) -> Optional[HTTPResponse]:
        """Follow a permanent redirect as urllib follows a temporary one."""
        followed: Optional[HTTPResponse] = self.http_error_307(req, fp, 307, msg, headers)
        return followed

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Optional[urllib.request.Request]:
        fp.close()  # else urllib reads the body to its end, which need not come
        _require_followable(req.full_url, newurl)
        bare, login = _without_login(newurl)
        request = super().redirect_request(req, fp, code, msg, headers, bare)
        if not login and urlsplit(bare)[:2] == urlsplit(req.full_url)[:2]:
            login = req.unredirected_hdrs.get(_LOGIN, "")
        if request is not None:
            request.remove_header("Proxy-authorization")  # a proxy's own login, which is added again for it
            if login:
                request.add_unredirected_header(_LOGIN, login)
        return request


class TooSlowError(TimeoutError):
    """The server sent fewer than ``LEAST_BYTES`` during ``WINDOW_SECONDS`` of waiting."""


class _PacedStream(io.RawIOBase):
    """A raw stream whose reads raise ``TooSlowError``.

    Only the time spent waiting for bytes counts, not the reader's own, and only bytes of the body count. The
    first read has only the socket's timeout, because a server may need time to find the file.
    """

    def __init__(self, raw: io.RawIOBase, clock: Clock, host: str, most: float) -> None:
        self._raw = raw
        self._host = host
        self._most = most
        self._clock = clock
        self._begun = False
        self._waited, self._came = 0.0, 0
        self._lines, self._body = 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> Optional[int]:  # type: ignore[override]  # no other buffer comes
        """Read into ``buffer`` as ``io.RawIOBase`` defines. Raises ``TooSlowError``."""
        begin = self._clock()
        count = self._raw.readinto(buffer)
        self._body += count or 0
        self._count(count or 0, self._clock() - begin if self._begun else 0.0)
        self._begun = True
        if self._body > self._most:
            raise TransferError(f"{self._host} sends more than the {self._most} bytes that a file may have.")
        return count

    def leave_out(self, line: int) -> None:
        """Count ``line`` bytes that were read as no part of the body. Raises ``TransferError``."""
        self._lines += line
        self._body -= line
        self._came -= line
        if self._lines > _MOST_LINES + _MOST_PER_BYTE * self._body:
            raise TransferError(
                f"{self._host} sends {self._lines} bytes of headers, chunk sizes or trailers, and hardly any "
                "of the file.",
                advice="That server is broken or hostile: take the files from another place.",
            )

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def _count(self, came: int, seconds: float) -> None:
        self._came += came
        self._waited += seconds
        if self._waited < WINDOW_SECONDS:
            return
        if self._came < LEAST_BYTES:
            raise TooSlowError(f"only {max(self._came, 0)} bytes in {self._waited:.0f} s")
        self._waited, self._came = 0.0, 0


class _PacedReader(io.BufferedReader):
    """A reader whose lines are no part of the body: ``http.client`` reads the body in blocks."""

    def __init__(self, stream: _PacedStream) -> None:
        super().__init__(stream)
        self._stream = stream

    def readline(self, size: Optional[int] = -1, /) -> bytes:
        """Return the next line as ``io.BufferedReader`` does. Raises ``TransferError``."""
        line = super().readline(size)
        self._stream.leave_out(len(line))
        return line


class _PacedResponse(HTTPResponse):
    """A response whose headers and body are read through ``_PacedStream``."""

    def __init__(self, clock: Clock, host: str, most: float, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as http.client calls it
        self.fp = _PacedReader(_PacedStream(self.fp.detach(), clock, host, most))

    def _read_next_chunk_size(self) -> int:
        """Return what ``http.client`` reads. Raises ``ValueError`` below 0, as for what is no number."""
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # not in the stub
        if size < 0:
            raise ValueError(size)
        return size


def _paced(kind: Callable[..., HTTPConnection], clock: Clock) -> Callable[..., HTTPConnection]:
    """Return ``kind``, a constructor of connections, with ``_PacedResponse`` as the class of responses."""

    def connect(*arguments: object, **named: object) -> HTTPConnection:
        connection = kind(*arguments, **named)
        connection.response_class = partial(_PacedResponse, clock, connection.host, inf)  # type: ignore[assignment]  # it is called
        return connection

    return connect


class _PacedHandler(urllib.request.AbstractHTTPHandler):
    """A handler that makes connections with ``_PacedResponse``."""

    def __init__(self, clock: Clock, certificates: Optional[Path]) -> None:
        super().__init__()
        self._clock = clock
        self._certificates = certificates

    def do_open(
        self, http_class: Callable[..., HTTPConnection], req: urllib.request.Request, **named: object
    ) -> HTTPResponse:
        return super().do_open(_paced(http_class, self._clock), req, **named)


class _Http(_PacedHandler, urllib.request.HTTPHandler):
    """A handler for http whose responses raise ``TooSlowError``."""


_KINDS: List[Type[_PacedHandler]] = [_Http]

NO_TLS: Tuple[Type[OSError], ...] = ()
"""The errors of a connection that TLS does not protect; empty in a Python without ssl."""

TLS_BROKE_OFF: Tuple[Type[OSError], ...] = ()
"""The errors among ``NO_TLS`` of a connection that breaks off."""

if hasattr(urllib.request, "HTTPSHandler"):  # absent in a Python without ssl
    import ssl
    from http.client import HTTPSConnection

    class _Https(_PacedHandler, urllib.request.HTTPSHandler):
        """A handler for https whose responses raise ``TooSlowError``.

        It trusts the user's certificates alone, where there are any, else the system's.
        """

        def https_open(self, req: urllib.request.Request) -> HTTPResponse:
            """Open the request as urllib does. Raises ``URLError``."""
            context = _context(self._certificates) if self._certificates else None
            return self.do_open(HTTPSConnection, req, context=context)

    _KINDS.append(_Https)
    NO_TLS = (ssl.SSLError,)
    TLS_BROKE_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

    def _context(certificates: Path) -> ssl.SSLContext:
        """Return a context that trusts only these certificates. Raises ``URLError`` if none can be read."""
        try:
            if certificates.is_dir():
                return ssl.create_default_context(capath=certificates)
            return ssl.create_default_context(cafile=certificates)
        except OSError as error:
            raise URLError(
                f"no certificates can be read in {certificates}, which REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE "
                f"names ({error.strerror or error})"
            ) from error
