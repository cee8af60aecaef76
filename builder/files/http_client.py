"""HTTP requests. Their failures are final or transient; after a transient one, the request is repeated."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, InvalidURL
from socket import EAI_NONAME, gaierror
from threading import Timer
from typing import Callable, Dict, Iterator, Mapping, Optional, TypeVar, Union
from urllib.error import HTTPError, URLError

from builder.errors import TransferError
from builder.files.http_opener import LEAST_BYTES, NO_TLS, TLS_BROKE_OFF, Open, TooSlowError
from builder.formats.text import redacted

SILENT_SECONDS = 5.0
"""Seconds without an answer after which the user gets a message."""

FRUITLESS_TRIES = 5
"""Number of tries in a row without new bytes, or with too few per second, after which the download fails."""

MEAGRE_TRIES = 50
"""Number of tries in a row with fewer than ``LEAST_BYTES`` each after which the download fails: without this
limit, a server that sends a byte per connection would be retried without end."""

LONGEST_WAIT_SECONDS = 60.0

TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The status codes of answers after which the same request may succeed later."""

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

Headers = Union[Mapping[str, str], "Message[str, str]"]
"""The headers of an answer; their names are read in any case."""

T = TypeVar("T")


def _ignored(line: str) -> None:
    """Ignore the message."""


@dataclass(frozen=True)
class Web:
    """The network, the clock and the user's messages. Tests replace them."""

    open: Open
    """``open(url, headers)``; raises ``HTTPError`` for 4xx and 5xx, ``OSError`` for the network."""
    sleep: Callable[[float], None]
    progress: Callable[[int, int], None]
    """``progress(done, total)`` in bytes; ``total`` is 0 where the server does not say."""
    say: Callable[[str], None] = _ignored
    """Gets a message for each failure that is retried, and for other facts that a user should know."""
    hint: str = "Check the address."
    """The advice for a file that the server does not have."""


class NotThereError(TransferError):
    """The server answered that it does not have the file."""


class ForbiddenError(TransferError):
    """The server answered 403, as S3 also does for a missing file of a bucket that may not be listed."""


def read_body(response: HTTPResponse, limit: int) -> bytes:
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
        response = send_request(url, {}, web)
        try:
            return read_body(response, limit + 1)
        except (OSError, HTTPException) as error:
            raise TransferError(f"{redacted(url)}: {error}", retry_after=0.0) from error

    content = retried(once, lambda: 0, web)
    if len(content) > limit:
        raise too_large(redacted(url), limit, web.hint)
    return content


def too_large(shown: str, limit: int, advice: str = "") -> TransferError:
    """Return the error for a document of more than ``limit`` bytes at the place ``shown``."""
    what = f"{shown}: larger than {limit} bytes, so it is not what was asked for."
    return TransferError(what, advice=advice)


def retried(attempt: Callable[[], T], done: Callable[[], int], web: Web) -> T:
    """Return the result of ``attempt``, which is repeated while its ``TransferError`` has a ``retry_after``.

    ``done`` returns the number of bytes received so far; those of a server that is too slow do not count as
    progress. Ends after ``FRUITLESS_TRIES`` in a row without more bytes, after ``MEAGRE_TRIES`` in a row with
    fewer than ``LEAST_BYTES`` each, and for a host that is unknown before any bytes. The error then has no
    ``retry_after``.
    """
    fruitless, meagre, best = 0, 0, done()
    while True:
        try:
            return attempt()
        except TransferError as error:  # noqa: PERF203 a try a round
            if error.retry_after is None:
                raise
            came = 0 if isinstance(error.__cause__, TooSlowError) else done() - best
            best = max(best, done())
            fruitless = 0 if came > 0 else fruitless + 1
            meagre = 0 if came >= LEAST_BYTES else meagre + 1
            if _is_unknown_host(error.__cause__) and best == 0:
                error.retry_after, error.advice = None, "Check the name, and the network."
                raise
            if fruitless >= FRUITLESS_TRIES or meagre >= MEAGRE_TRIES:
                tries = meagre if meagre >= MEAGRE_TRIES else fruitless
                error.retry_after, error.what = None, f"{error.what} (tried {tries} times)"
                error.advice = "Check the network. Run the command again: it continues."
                raise
            pause = min(error.retry_after or 2.0 ** max(fruitless - 1, 0), LONGEST_WAIT_SECONDS)
            web.say(f"{error}; trying again in {pause:.0f} s")
            web.sleep(pause)


def send_request(url: str, headers: Dict[str, str], web: Web) -> HTTPResponse:
    """Return the response to one request. Raises ``TransferError``."""
    shown = redacted(url)
    try:
        with _announced(f"{shown}: no answer yet", web):
            return web.open(url, headers)
    except HTTPError as error:
        error.close()
        raise _refusal(shown, error, web) from error
    except URLError as error:
        why = redacted(str(error.reason))
        if isinstance(error.reason, OSError) and not _final(error.reason):
            raise TransferError(f"{shown}: {why}", retry_after=0.0) from error
        advice = _CONNECTION if isinstance(error.reason, OSError) else ""
        raise TransferError(f"{shown}: {why}.", advice=advice) from error
    except (ValueError, InvalidURL) as error:
        why = "" if shown != url else f": {error}"  # the error may contain a part of the login
        raise TransferError(f"{shown}: not a URL that can be opened{why}.", advice=_SPELLED) from error
    except (OSError, HTTPException) as error:
        what = f"{shown}: {str(error) or type(error).__name__}"
        raise TransferError(what, retry_after=0.0) from error


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


def _is_unknown_host(error: Optional[BaseException]) -> bool:
    reason = error.reason if isinstance(error, URLError) else None
    return isinstance(reason, gaierror) and reason.errno == EAI_NONAME


def _final(error: OSError) -> bool:
    """Return whether a retry cannot help: no TLS on the server, a bad certificate, a proxy that refuses.

    The error of a certificate is a ``ValueError``.
    """
    proxy = _PROXY_REFUSES.match(str(error))
    if proxy is not None:
        return int(proxy[1]) not in TRANSIENT_STATUS
    return isinstance(error, (ValueError, *NO_TLS)) and not isinstance(error, TLS_BROKE_OFF)


def _refusal(shown: str, error: HTTPError, web: Web) -> TransferError:
    message = f"{shown}: HTTP {error.code} {redacted(str(error.reason))}"
    if error.code in {*TRANSIENT_STATUS, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}:
        wait = named_wait(error.headers, sent_at(error.headers))
        return TransferError(message, retry_after=wait or 0.0)
    if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return NotThereError(message, advice=web.hint)
    if error.code in _LOGINS:
        kind = ForbiddenError if error.code == HTTPStatus.FORBIDDEN else TransferError
        return kind(f"{message}. It may be private, or a proxy refuses it.", advice=_LOGINS[error.code])
    return TransferError(message, advice=web.hint)


def named_wait(headers: Headers, now: Optional[float]) -> Optional[float]:
    """Return the seconds to wait that the headers name; ``None`` if they name none.

    ``now`` is Unix time, ``None`` where it is unknown. A point in time, in ``Retry-After`` or
    ``X-RateLimit-Reset``, gives at least one second.
    """
    after = headers.get("Retry-After", "").strip()
    if after.isdecimal():
        return float(after)
    when = _http_date(after)
    reset = headers.get("X-RateLimit-Reset", "")
    if when is None and headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        when = float(reset)
    return None if when is None or now is None else max(1.0, when - now)


def sent_at(headers: Headers) -> Optional[float]:
    """Return the Unix time of the answer by the server's clock, to which times in headers refer.

    The result is ``None`` without a ``Date`` header. This machine's clock may be wrong.
    """
    return _http_date(headers.get("Date", ""))


def _http_date(text: str) -> Optional[float]:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
