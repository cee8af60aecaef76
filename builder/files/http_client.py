"""HTTP requests through urllib; each failure is final or transient, and transient ones are retried.

Proxies and certificates are those of the environment. No redirect leads from https to http, a login in a URL
is sent to no other host and shown in no message, and a server that sends too little is given up. OpenSSL
itself reads ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.
"""

from __future__ import annotations

import io
import re
import time
import urllib.request
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from pathlib import Path
from socket import EAI_NONAME, gaierror
from threading import Timer
from typing import IO, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Tuple, Type, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from builder.errors import TransferError
from builder.formats.text import without_userinfo

TIMEOUT_SECONDS = 30.0

SILENT_SECONDS = 5.0
"""Seconds without an answer after which the user gets a message."""

_LOGIN = "Authorization"

_LEFT_ALONE = "!#$%&'()*+,/:;=?@[]~"
"""The characters that are not escaped in a URL, besides letters, digits and ``_.-~``."""

FRUITLESS_TRIES = 5
"""Number of tries in a row without new bytes, or with too few per second, after which the download fails."""

MEAGRE_TRIES = 50
"""Number of tries in a row with fewer than ``LEAST_BYTES`` each after which the download fails: without this
limit, a server that sends a byte per connection would be retried without end."""

LONGEST_WAIT_SECONDS = 60.0

WINDOW_SECONDS = 30.0

LEAST_BYTES = 30 * 1024
"""The least bytes in ``WINDOW_SECONDS``: 1 KiB/s, at which a package would take weeks."""

Clock = Callable[[], float]
"""A function that returns seconds since any fixed moment."""

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})

_CONNECTION = "Check this machine's certificates and proxy. A server without TLS is asked with http://."

_SPELLED = "Write it like https://HOST/PATH; in a login, / @ and blanks are written %2F, %40 and %20."

_IN_THE_URL = "A login goes into the URL: https://USER:PASSWORD@HOST/PATH."

_LOGINS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: _IN_THE_URL,
    HTTPStatus.FORBIDDEN: _IN_THE_URL,
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "A proxy's goes into https_proxy: http://USER:PASSWORD@PROXY:PORT.",
}
"""The advice where a server or a proxy wants a login, by HTTP status."""

_PROXY_REFUSES = re.compile(r"Tunnel connection failed: (\d{3})\b")
"""The message of ``http.client`` for a proxy that refuses CONNECT, with its HTTP status."""

SIZE = re.compile(r"[0-9]{1,18}")
"""A number of bytes in a header."""

T = TypeVar("T")


class Response(Protocol):
    """The part of urllib's response that is used."""

    status: int
    headers: HTTPMessage

    def read(self, amount: int, /) -> bytes:
        """Return ``amount`` bytes, fewer at the end; where the connection breaks, received bytes are lost."""

    def read1(self, amount: int, /) -> bytes:
        """Return the received bytes, up to ``amount``; empty at the end."""

    def close(self) -> None:
        """Close the response, and with it the connection."""


def _unheard(line: str) -> None:
    """Ignore the message."""


Open = Callable[[str, Dict[str, str]], Response]


@dataclass(frozen=True)
class Web:
    """The network, the clock and the user's messages. Tests replace them."""

    open: Open
    """``open(url, headers)``; raises ``HTTPError`` for 4xx and 5xx, ``OSError`` for the network."""
    sleep: Callable[[float], None]
    progress: Callable[[int, int], None]
    """``progress(done, total)`` in bytes; ``total`` is 0 where the server does not say."""
    say: Callable[[str], None] = _unheard
    """Gets a message for each failure that is retried, and for other facts that a user should know."""
    hint: str = "Check the address."
    """The advice for a file that the server does not have."""


class NotThereError(TransferError):
    """The server answered that it does not have the file."""


class ForbiddenError(TransferError):
    """The server answered 403, as S3 also does for a missing file of a bucket that nobody may list."""


class TransientError(Exception):
    """A failure that may not happen again; ``wait`` is the server's Retry-After in seconds."""

    def __init__(self, message: str, wait: Optional[float] = None) -> None:
        super().__init__(message)
        self.wait = wait


class UnknownHostError(TransientError):
    """The server's name is unknown. Final where no bytes have come from it, else a failure of the network."""


class SlowError(TransientError):
    """The server sends too few bytes per second. The received bytes do not count as progress."""


class RangeRefusedError(TransientError):
    """The server answered 416: its file is shorter than the local part."""


def trusted_certificates(env: Mapping[str, str]) -> Optional[Path]:
    """Return the file or folder with the only certificates to trust, by requests' and curl's variables.

    ``None`` where the environment names none: then the system's, or those of ``SSL_CERT_FILE``, are trusted.
    """
    named = env.get("REQUESTS_CA_BUNDLE") or env.get("CURL_CA_BUNDLE")
    return Path(named) if named else None


def open_url(
    url: str, headers: Dict[str, str], clock: Clock = time.monotonic, certificates: Optional[Path] = None
) -> Response:
    """Send a request through the environment's proxies and return its response.

    Reading the response raises ``TooSlowError``. A login in ``headers`` or in ``url`` is sent to no other
    host. ``certificates`` is the result of ``trusted_certificates``. Raises ``HTTPError`` for 4xx and 5xx,
    ``URLError`` and other ``OSError`` for the network, ``ValueError`` for a malformed URL.
    """
    _require_http(url)
    bare, login = _without_login(quote(url, safe=_LEFT_ALONE))
    known = {"User-Agent": "ortpacks", **headers}
    login = known.pop(_LOGIN, login)
    request = urllib.request.Request(bare, headers=known)  # noqa: S310 checked
    if login:
        request.add_unredirected_header(_LOGIN, login)
    opener = urllib.request.build_opener(_Redirects(), *(kind(clock, certificates) for kind in _KINDS))
    response: Response = opener.open(request, timeout=TIMEOUT_SECONDS)
    return response


def _without_login(url: str) -> Tuple[str, str]:
    """Return the URL without ``user:password@``, and the login as a header's value; empty without one."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, ""
    login, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), basic_login(login)


def basic_login(login: str) -> str:
    """Return the value of the header for ``USER:PASSWORD``, escaped as in a URL."""
    user, _, password = login.partition(":")
    return f"Basic {b64encode(unquote(f'{user}:{password}').encode()).decode()}"


def read_body(response: Response, limit: int) -> bytes:
    """Return the first ``limit`` bytes of a response and close it. Raises ``OSError`` or ``HTTPException``.

    A body that ends before its announced length is a ``ConnectionError``.
    """
    try:
        content = response.read(limit)
    finally:
        response.close()
    announced = response.headers.get("Content-Length", "")
    if SIZE.fullmatch(announced) and len(content) < min(int(announced), limit):
        raise ConnectionError(f"ended after {len(content)} of {announced} bytes")
    return content


def read_small(url: str, limit: int, web: Web) -> bytes:
    """Return a document of at most ``limit`` bytes. Raises ``TransferError``."""

    def once() -> bytes:
        response = ask(url, {}, web)
        try:
            return read_body(response, limit + 1)
        except (OSError, HTTPException) as error:
            raise TransientError(f"{without_userinfo(url)}: {error}") from error

    content = persist(once, lambda: 0, web)
    if len(content) > limit:
        what = f"{without_userinfo(url)}: larger than {limit} bytes, so it is not what was asked for."
        raise TransferError(what, advice=web.hint)
    return content


def persist(attempt: Callable[[], T], done: Callable[[], int], web: Web) -> T:
    """Return the result of ``attempt``, which is repeated while it raises ``TransientError``.

    ``done`` returns the number of bytes received so far. Raises ``TransferError`` after ``FRUITLESS_TRIES``
    in a row without more bytes, after ``MEAGRE_TRIES`` in a row with fewer than ``LEAST_BYTES`` each, and for
    a host that is unknown before any bytes.
    """
    fruitless, meagre, best = 0, 0, done()
    while True:
        try:
            return attempt()
        except TransientError as error:  # noqa: PERF203 a try a round
            came = 0 if isinstance(error, SlowError) else done() - best
            best = max(best, done())
            fruitless = 0 if came > 0 else fruitless + 1
            meagre = 0 if came >= LEAST_BYTES else meagre + 1
            if isinstance(error, UnknownHostError) and best == 0:
                raise TransferError(f"{error}.", advice="Check the name, and the network.") from error
            if fruitless >= FRUITLESS_TRIES or meagre >= MEAGRE_TRIES:
                tries = meagre if meagre >= MEAGRE_TRIES else fruitless
                raise TransferError(
                    f"{error} (tried {tries} times)",
                    advice="Check the network. Run the command again: it goes on.",
                ) from error
            pause = error.wait if error.wait is not None else 2.0 ** max(fruitless - 1, 0)
            pause = min(pause, LONGEST_WAIT_SECONDS)
            web.say(f"{error}; trying again in {pause:.0f} s")
            web.sleep(pause)


def ask(url: str, headers: Dict[str, str], web: Web) -> Response:
    """Return the response to one request.

    Raises ``TransientError``, or ``TransferError`` where no retry can help.
    """
    shown = without_userinfo(url)
    try:
        with _announced(f"{shown}: no answer yet", web):
            return web.open(url, headers)
    except HTTPError as error:
        error.close()
        raise _refusal(shown, error, web) from error
    except URLError as error:
        why = without_userinfo(str(error.reason))
        if isinstance(error.reason, OSError) and not _final(error.reason):
            unknown = isinstance(error.reason, gaierror) and error.reason.errno == EAI_NONAME
            raise (UnknownHostError if unknown else TransientError)(f"{shown}: {why}") from error
        advice = _CONNECTION if isinstance(error.reason, OSError) else ""
        raise TransferError(f"{shown}: {why}.", advice=advice) from error
    except (ValueError, InvalidURL) as error:
        why = "" if shown != url else f": {error}"  # the error may contain a part of the login
        raise TransferError(f"{shown}: not a URL that can be opened{why}.", advice=_SPELLED) from error
    except (OSError, HTTPException) as error:
        raise TransientError(f"{shown}: {str(error) or type(error).__name__}") from error


@contextmanager
def _announced(line: str, web: Web) -> Iterator[None]:
    """Pass ``line`` to the user where the block takes longer than ``SILENT_SECONDS``."""

    def tell() -> None:
        with suppress(TransferError):  # the download was stopped
            web.say(line)

    timer = Timer(SILENT_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _final(error: OSError) -> bool:
    """Return whether a retry cannot help: no TLS on the server, a bad certificate, a proxy that refuses.

    The error of a certificate is a ``ValueError``.
    """
    proxy = _PROXY_REFUSES.match(str(error))
    if proxy is not None:
        return int(proxy[1]) not in TRANSIENT
    return isinstance(error, (ValueError, *_NO_TLS)) and not isinstance(error, _TLS_BROKE_OFF)


def _refusal(shown: str, error: HTTPError, web: Web) -> Exception:
    message = f"{shown}: HTTP {error.code} {error.reason}"
    if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return RangeRefusedError(message)
    if error.code in TRANSIENT:
        return TransientError(message, _retry_after(error))
    if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return NotThereError(message, advice=web.hint)
    if error.code in _LOGINS:
        kind = ForbiddenError if error.code == HTTPStatus.FORBIDDEN else TransferError
        return kind(f"{message}. It may be private, or a proxy refuses it.", advice=_LOGINS[error.code])
    return TransferError(message, advice=web.hint)


def _retry_after(error: HTTPError) -> Optional[float]:
    """Return the server's Retry-After in seconds; ``None`` where it gives none.

    A date is compared with the server's own Date, because this machine's clock may be wrong.
    """
    text, now = (error.headers.get(name, "") for name in ("Retry-After", "Date"))
    if text.isdecimal():
        return float(text)
    try:
        return max((parsedate_to_datetime(text) - parsedate_to_datetime(now)).total_seconds(), 0.0)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _require_http(url: str) -> None:
    """Raise ``URLError`` for a scheme other than http and https, ``ValueError`` for an invalid port."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise URLError(f"{url}: only http and https are fetched")
    _ = parts.port


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects from https to http, because an index is trusted by its connection."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Optional[urllib.request.Request]:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise URLError(f"{req.full_url} redirects to {newurl}, which is not encrypted")
        _require_http(newurl)
        bare, login = _without_login(newurl)
        request = super().redirect_request(req, fp, code, msg, headers, bare)
        if not login and urlsplit(bare)[:2] == urlsplit(req.full_url)[:2]:
            login = req.unredirected_hdrs.get(_LOGIN, "")
        if request is not None and login:
            request.add_unredirected_header(_LOGIN, login)
        return request


class TooSlowError(TimeoutError):
    """The server sent fewer than ``LEAST_BYTES`` during ``WINDOW_SECONDS`` of waiting."""


class _Raw(Protocol):
    """A socket's stream of raw bytes."""

    def readinto(self, buffer: memoryview, /) -> Optional[int]:
        """Wait for bytes, write them into ``buffer`` and return their number."""

    def close(self) -> None:
        """Close the socket."""


class _Paced(io.RawIOBase):
    """A raw stream whose reads raise ``TooSlowError``.

    Only the time spent waiting for bytes counts, not the reader's own. The first read has only the socket's
    timeout, because a server may need time to find the file.
    """

    def __init__(self, raw: _Raw, clock: Clock) -> None:
        self._raw = raw
        self._clock = clock
        self._begun = False
        self._waited, self._came = 0.0, 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: memoryview, /) -> Optional[int]:  # type: ignore[override]  # no other buffer comes
        """Read into ``buffer`` as ``io.RawIOBase`` defines. Raises ``TooSlowError``."""
        begin = self._clock()
        count = self._raw.readinto(buffer)
        if self._begun:
            self._count(count or 0, self._clock() - begin)
        self._begun = True
        return count

    def close(self) -> None:
        """Close the stream below too."""
        if not self.closed:
            self._raw.close()
        super().close()

    def _count(self, came: int, seconds: float) -> None:
        self._came += came
        self._waited += seconds
        if self._waited < WINDOW_SECONDS:
            return
        if self._came < LEAST_BYTES:
            raise TooSlowError(f"only {self._came} bytes in {self._waited:.0f} s")
        self._waited, self._came = 0.0, 0


class _PacedResponse(HTTPResponse):
    """A response whose headers and body are read through ``_Paced``."""

    def __init__(self, clock: Clock, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as http.client calls it
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), clock))


def _paced(kind: Callable[..., HTTPConnection], clock: Clock) -> Callable[..., HTTPConnection]:
    """Return ``kind``, a constructor of connections, with ``_PacedResponse`` as the class of responses."""

    def connect(*arguments: object, **named: object) -> HTTPConnection:
        connection = kind(*arguments, **named)
        connection.response_class = partial(_PacedResponse, clock)  # type: ignore[assignment]  # it is called
        return connection

    return connect


class _Patient(urllib.request.AbstractHTTPHandler):
    """A handler that makes connections with ``_PacedResponse``."""

    def __init__(self, clock: Clock, certificates: Optional[Path]) -> None:
        super().__init__()
        self._clock = clock
        self._certificates = certificates

    def do_open(
        self, http_class: Callable[..., HTTPConnection], req: urllib.request.Request, **named: object
    ) -> HTTPResponse:
        return super().do_open(_paced(http_class, self._clock), req, **named)


class _Http(_Patient, urllib.request.HTTPHandler):
    """A handler for http whose responses raise ``TooSlowError``."""


_KINDS: List[Type[_Patient]] = [_Http]

_NO_TLS: Tuple[Type[OSError], ...] = ()

_TLS_BROKE_OFF: Tuple[Type[OSError], ...] = ()

if hasattr(urllib.request, "HTTPSHandler"):  # absent in a Python without ssl
    import ssl
    from http.client import HTTPSConnection

    class _Https(_Patient, urllib.request.HTTPSHandler):
        """A handler for https whose responses raise ``TooSlowError``.

        It trusts the user's certificates alone, where there are any, else the system's.
        """

        def https_open(self, req: urllib.request.Request) -> HTTPResponse:
            """Open the request as urllib does. Raises ``URLError``."""
            context = _context(self._certificates) if self._certificates else None
            return self.do_open(HTTPSConnection, req, context=context)

    _KINDS.append(_Https)
    _NO_TLS = (ssl.SSLError,)
    _TLS_BROKE_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

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
