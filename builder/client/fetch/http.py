"""HTTP for the client: statuses sorted into final and transient, transient ones tried again.

How urllib is asked: redirects only to what is as safe, and no waiting for ever.
"""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Callable, Dict, List, Optional, Protocol, Type, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from builder.client.fetch.pace import Clock, paced
from builder.errors import TransferError

TIMEOUT_SECONDS = 30.0

FRUITLESS_TRIES = 5
"""Tries in a row that brought nothing beyond what had come before, or next to nothing, before giving up."""

LONGEST_WAIT_SECONDS = 60.0

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})

T = TypeVar("T")


class Response(Protocol):
    """The part of urllib's response that is used."""

    status: int
    headers: HTTPMessage

    def read(self, amount: int, /) -> bytes:
        """``amount`` bytes, fewer at the end; what came is lost where the connection breaks."""

    def read1(self, amount: int, /) -> bytes:
        """What has come, up to ``amount`` bytes; empty at the end."""

    def close(self) -> None:
        """Give the connection back."""


Open = Callable[[str, Dict[str, str]], Response]


@dataclass(frozen=True)
class Web:
    """The network and the clock, so that a test can stand in for both."""

    open: Open
    """``open(url, headers)``; raises ``HTTPError`` for 4xx and 5xx, ``OSError`` for the network."""
    sleep: Callable[[float], None]
    progress: Callable[[int, int], None]
    """``progress(done, total)`` in bytes."""


def without_network(web: Web) -> Web:
    """A network that nothing is fetched from."""

    def refuse(url: str, headers: Dict[str, str]) -> Response:  # noqa: ARG001 the shape of ``Open``
        raise TransferError(f"{url}: --offline fetches nothing. Copy it here, or leave --offline out.")

    return replace(web, open=refuse)


class TransientError(Exception):
    """Worth another try; ``wait`` is what the server asked for, in seconds."""

    def __init__(self, message: str, wait: Optional[float] = None) -> None:
        super().__init__(message)
        self.wait = wait


class SlowError(TransientError):
    """The server sends next to nothing: bytes that came are no reason to go on with it for ever."""


class RangeRefusedError(TransientError):
    """416: the server's file is shorter than what is here already."""


def open_url(url: str, headers: Dict[str, str], clock: Clock = time.monotonic) -> Response:
    """A request by urllib, with its proxies from the environment, and a limit to how slow it may be."""
    require_http(url)
    request = urllib.request.Request(url, headers={"User-Agent": "ortpacks", **headers})  # noqa: S310 checked
    response: Response = opener(clock).open(request, timeout=TIMEOUT_SECONDS)
    return response


def read_small(url: str, limit: int, web: Web) -> bytes:
    """A document of at most ``limit`` bytes. Raises ``TransferError``."""

    def once() -> bytes:
        response = ask(url, {}, web)
        try:
            content = response.read(limit + 1)
        except (OSError, HTTPException) as error:
            raise TransientError(f"{url}: {error}") from error
        finally:
            response.close()
        announced = response.headers.get("Content-Length")
        if announced and announced.isdecimal() and len(content) < min(int(announced), limit):
            raise TransientError(f"{url}: ended after {len(content)} of {announced} bytes")
        return content

    content = persist(once, lambda: 0, web)
    if len(content) > limit:
        raise TransferError(f"{url}: larger than {limit} bytes, so it is not what was asked for.")
    return content


def persist(attempt: Callable[[], T], done: Callable[[], int], web: Web) -> T:
    """Try until it works, was fruitless ``FRUITLESS_TRIES`` times in a row, or fails for good."""
    fruitless, best = 0, done()
    while True:
        try:
            return attempt()
        except TransientError as error:  # noqa: PERF203 a try a round
            gained = done() > best and not isinstance(error, SlowError)
            best = max(best, done())
            fruitless = 0 if gained else fruitless + 1
            if fruitless >= FRUITLESS_TRIES:
                raise TransferError(
                    f"{error} (tried {FRUITLESS_TRIES} times). Run the command again: it goes on."
                ) from error
            pause = error.wait if error.wait is not None else 2.0 ** max(fruitless - 1, 0)
            web.sleep(min(pause, LONGEST_WAIT_SECONDS))


def ask(url: str, headers: Dict[str, str], web: Web) -> Response:
    """One request. Raises ``TransientError`` where another try may help, else ``TransferError``."""
    try:
        return web.open(url, headers)
    except HTTPError as error:
        error.close()
        raise _refusal(url, error) from error
    except URLError as error:
        # A certificate that fails is an OSError and a ValueError; asking again does not make it better.
        if isinstance(error.reason, OSError) and not isinstance(error.reason, ValueError):
            raise TransientError(f"{url}: {error.reason}") from error
        raise TransferError(f"{url}: {error.reason}") from error
    except ValueError as error:
        raise TransferError(f"{url}: not a URL that can be opened: {error}") from error
    except (OSError, HTTPException) as error:
        raise TransientError(f"{url}: {str(error) or type(error).__name__}") from error


def _refusal(url: str, error: HTTPError) -> Exception:
    message = f"{url}: HTTP {error.code} {error.reason}"
    if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return RangeRefusedError(message)
    if error.code in TRANSIENT:
        return TransientError(message, _retry_after(error))
    return TransferError(f"{message}. {_advice(error.code)}")


def _retry_after(error: HTTPError) -> Optional[float]:
    """Seconds. A date is held to the server's own, not to this machine's clock."""
    text, now = (error.headers.get(name, "") for name in ("Retry-After", "Date"))
    if text.isdecimal():
        return float(text)
    try:
        return max((parsedate_to_datetime(text) - parsedate_to_datetime(now)).total_seconds(), 0.0)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _advice(code: int) -> str:
    if code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return "The release may be private, or a proxy refuses it."
    return "Check --index: packages lie beside index.json."


def opener(clock: Clock) -> urllib.request.OpenerDirector:
    """With the proxies of the environment. What it opens raises ``TooSlowError`` by ``clock``."""
    return urllib.request.build_opener(_Redirects(), *(kind(clock) for kind in _KINDS))


def require_http(url: str) -> None:
    """``URLError`` for any other scheme."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise URLError(f"{url}: only http and https are fetched")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Followed, but never from https to less: the index is trusted by its connection."""

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
        require_http(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Patient(urllib.request.AbstractHTTPHandler):
    """Connections that end when next to nothing comes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def do_open(
        self, http_class: Callable[..., HTTPConnection], req: urllib.request.Request, **named: object
    ) -> HTTPResponse:
        return super().do_open(paced(http_class, self._clock), req, **named)


class _Http(_Patient, urllib.request.HTTPHandler):
    """In the clear."""


_KINDS: List[Type[_Patient]] = [_Http]

if hasattr(urllib.request, "HTTPSHandler"):  # a Python may have been built without

    class _Https(_Patient, urllib.request.HTTPSHandler):
        """Encrypted."""

    _KINDS.append(_Https)
