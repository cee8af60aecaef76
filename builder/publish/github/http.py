"""Client of GitHub's API, which repeats requests after temporary failures.

The token leaves this module in the Authorization header only; the token is removed from every message.

Sources: docs.github.com "Rate limits for the REST API", "Best practices for using the REST API",
"Troubleshooting the REST API". No library does the waiting: urllib3's ``Retry`` sees only the headers of one
answer and cannot check whether an upload arrived.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import requests

from builder.config.fields import API, API_FORM
from builder.console import Reporter
from builder.errors import BuilderError, ConfigError, IntegrityError, TransferError, one_line
from builder.files.digest import LocalFile, chunks_of
from builder.files.http_client import named_wait, sent_at
from builder.formats.text import may_carry_a_token, printable, redacted
from builder.io.http_session import (
    Bearer,
    CheckedSession,
    certificate_refused,
    is_untrusted,
    system_error,
)

_CHUNK = 1 << 20

V = TypeVar("V")

_TRANSIENT = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)
"""The exceptions after which the same request may succeed later."""

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429

_SECONDARY_LIMIT = 60.0
"""The shortest wait in seconds for a rate limit when GitHub names no time."""

_LIMITED = re.compile("rate limit|abuse detection", re.IGNORECASE)
"""Words of a rate limit's message; older GitHub Enterprise servers call a secondary one abuse detection."""

_WRITING = {"repo", "public_repo"}

_NEEDED = (
    "Contents: write on the repository (a classic token the scope repo; a workflow "
    "`permissions: contents: write`)."
)

_ADVICE = {
    _UNAUTHORIZED: "The token is wrong, expired or revoked: make a new one and set GITHUB_TOKEN.",
    _FORBIDDEN: f"The token is valid but may not do this: it needs {_NEEDED}",
    _NOT_FOUND: "The repository does not exist, or the token may not see it: check publish.repository and "
    "what the token covers. A tag on a commit that changes workflows needs Workflows: write too.",
}

_MOVED = "The repository has moved: correct publish.repository in variants.yaml."


def rate_limit_wait(status: int, headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Return the seconds to wait for a rate limit; ``None`` for another answer. ``now`` is Unix time."""
    if status not in (_FORBIDDEN, _TOO_MANY):
        return None
    named = named_wait(headers, now)
    if named is not None:
        return named
    limited = status == _TOO_MANY or "Retry-After" in headers or _LIMITED.search(message) is not None
    return _SECONDARY_LIMIT if limited else None


def lacks_scope(headers: Mapping[str, str]) -> bool:
    """Return whether the answer lists a classic token's scopes and none of them allows writing."""
    scopes = {scope.strip() for scope in headers.get("X-OAuth-Scopes", "").split(",")} - {""}
    return bool(scopes) and not scopes & _WRITING


def may_not_write(repository: str) -> TransferError:
    """Return the error for a token that can read a repository but not write to it."""
    what = f"{repository}: the token may read the repository but not write to it"
    return TransferError(what, advice=f"It needs {_NEEDED}")


def reason_of(response: requests.Response) -> str:
    """Return GitHub's text for a refusal, or the text of the status line."""
    try:
        value: object = response.json()
    except (ValueError, RecursionError):
        return response.reason or "no reason given"
    return explain(value) or response.reason


def explain(value: object) -> str:
    """Return the ``message`` and the codes of ``errors`` in an error body; empty without either."""
    if not isinstance(value, dict):
        return ""
    return ", ".join(part for part in [str(value.get("message", "")), *codes_in(value)] if part)


def codes_in(value: object) -> list[str]:
    """Return the codes of ``errors`` in an error body."""
    details = value.get("errors") if isinstance(value, dict) else None
    if not isinstance(details, list):
        return []
    return [str(item.get("code", "")) for item in details if isinstance(item, dict)]


_TOKEN = re.compile(r"[\x21-\x7e]+")

_INSTALLATION = "ghs_"
"""The prefix of installation access tokens: docs.github.com "About authentication to GitHub"."""

_TIMEOUT = (30, 300)
"""The longest waits in seconds: to connect, and between two bytes. GitHub is slow after a large asset."""

_OK, _SERVER_ERROR = 200, 500

_JSON, _BYTES = "application/vnd.github+json", "application/octet-stream"

_READING = ("GET", "HEAD")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """The limits of repeated attempts; all times are in seconds."""

    attempts: int = 8
    first: float = 10.0
    cap: float = 300.0
    """Longest pause between two attempts when the host names no time."""
    longest: float = 3600.0
    """Longest pause that the host may ask for; a longer one ends the attempts."""
    between_writes: float = 1.0

    def pause(self, named: float, number: int) -> float:
        """Return the seconds to wait after attempt ``number``, from 1 on.

        ``named`` is the number of seconds that the host asked for, 0 for none.
        """
        return named or min(self.first * 2.0 ** (number - 1), max(self.first, self.cap))


@dataclass(frozen=True, kw_only=True)
class GitHubReply:
    """An expected answer. ``json`` is ``None`` for an empty body."""

    status: int
    json: object
    headers: Mapping[str, str]
    """The headers; their names are read in any case."""


class GitHubHttp:
    """A client of GitHub's API at ``api`` with ``token``; ``clock`` returns Unix time."""

    def __init__(
        self,
        *,
        api: str,
        token: str,
        reporter: Reporter,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        policy: RetryPolicy = RetryPolicy(),
    ) -> None:
        """Raise ``ConfigError`` for an address that no token may be sent to, or for a malformed token.

        A missing token is reported by the first request.
        """
        if API.fullmatch(api.rstrip("/")) is None:
            raise ConfigError(
                f"--api (or publish.api of variants.yaml) is {redacted(api)!r}",
                cause="the token would go there",
                advice=f"Allowed: {API_FORM}.",
            )
        if token and _TOKEN.fullmatch(token) is None:
            raise ConfigError(
                "The GitHub token holds blanks or line breaks", advice="Set it again (it is not shown here)."
            )
        self._api = api.rstrip("/")
        self._token = token
        self._reporter = reporter
        self._sleep = sleep
        self._policy = policy
        self._clock = clock
        self._last_write: float | None = None
        self._session = CheckedSession()
        self._session.headers.update({"User-Agent": "ortpacks", "X-GitHub-Api-Version": "2022-11-28"})
        self._answered = False
        self._limited: Counter[str] = Counter()
        """How often in a row each request met a rate limit for which GitHub named no time."""

    @property
    def stands_for_no_user(self) -> bool:
        """Return whether the token is a workflow's or GitHub App's; GitHub says ``push: false`` for those."""
        return self._token.startswith(_INSTALLATION)

    def call(
        self,
        method: str,
        path: str,
        *,
        wanted: Collection[int],
        params: Mapping[str, str | int] | None = None,
    ) -> GitHubReply:
        """Send a request below the API's base and return the answer, whose status must be in ``wanted``.

        The request is repeated after temporary failures, so it must be safe to send twice.
        """
        return self.retry(
            f"{method} {path}",
            lambda: self.attempt(method, path, wanted=wanted, params=params),
        )

    def retry(
        self, what: str, attempt: Callable[[], V], find_done: Callable[[], V | None] = lambda: None
    ) -> V:
        """Return the result of ``attempt``, repeated after a pause while its error has a ``retry_after``.

        ``find_done`` is called before each further attempt. A result other than ``None`` means that an
        earlier attempt succeeded and only its answer was lost; that result is returned. The last attempt's
        error is raised without a ``retry_after``, and tells ``what`` failed.
        """
        number = 1
        while True:
            try:
                return attempt()
            except BuilderError as error:
                if error.retry_after is None:
                    raise
                self._wait(what, error, self._policy.pause(error.retry_after, number), number)
            result = find_done()
            if result is not None:
                return result
            number += 1

    def _wait(self, what: str, error: BuilderError, wait: float, number: int) -> None:
        advice = ""
        if number >= self._policy.attempts:
            advice = f"Gave up after {number} attempts; run it again to go on."
        elif wait > self._policy.longest:
            advice = f"GitHub asks to wait {wait:.0f} s; run it again after that."
        if advice:
            error.what, error.cause, error.advice = one_line(what), error.headline, advice
            error.retry_after = None
            raise error
        tries = f"attempt {number + 1} of {self._policy.attempts} in {wait:.0f} s"
        self._reporter.warn(printable(f"{what}: {error.headline.rstrip('.')}; {tries}"))
        self._sleep(wait)

    def _pace(self) -> None:
        if self._last_write is not None:
            pause = self._last_write + self._policy.between_writes - self._clock()
            self._sleep(max(0.0, pause))
        self._last_write = self._clock()

    def attempt(
        self,
        method: str,
        url: str,
        *,
        wanted: Collection[int],
        content: Mapping[str, object] | None = None,
        params: Mapping[str, str | int] | None = None,
        data: FileBody | None = None,
    ) -> GitHubReply:
        """Send a request once and return the answer, whose status must be in ``wanted``.

        ``url`` is a path below the API's base, or a whole URL, since uploads go to another host. ``data`` is
        streamed. Raises ``TransferError``.
        """
        response = self._send(method, url, params=params, content=content, data=data)
        self._require(response, wanted)
        try:
            value: object = response.json() if response.content else None
        except (ValueError, RecursionError):
            raise TransferError("GitHub's answer was cut short", retry_after=0.0) from None
        return GitHubReply(status=response.status_code, json=value, headers=response.headers)

    def attempt_bytes(self, url: str, limit: int) -> Iterator[bytes]:
        """Send a GET request once and yield the body in blocks; a redirect to another host gets no token.

        Raises what ``attempt`` raises, and ``TransferError`` for more than ``limit`` bytes.
        """
        with self._send("GET", url, stream=True) as response:
            try:
                self._require(response, (_OK,))
                yield from _blocks_at_most(response, limit)
            except requests.RequestException as error:
                raise self._unanswered(error, response.url) from None

    def _send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        content: Mapping[str, object] | None = None,
        data: FileBody | None = None,
        stream: bool = False,
    ) -> requests.Response:
        url = self._api + url if url.startswith("/") else url
        self._require_safe(url)
        if method not in _READING:
            self._pace()
        try:
            response = self._session.request(
                method,
                url,
                params=params,
                json=content,
                data=data,
                headers={
                    "Accept": _BYTES if stream else _JSON,
                    "Content-Type": None if data is None else _BYTES,
                },
                auth=Bearer(self._token),
                timeout=_TIMEOUT,
                stream=stream,
                # A redirected write would become a GET, and the token would go where we did not send it.
                allow_redirects=method == "GET",
            )
        except requests.RequestException as error:
            raise self._unanswered(error, url) from None
        self._answered = True
        return response

    def _require(self, response: requests.Response, wanted: Collection[int]) -> None:
        status = response.status_code
        request = f"{response.request.method} {response.url}"
        if status in wanted and status != _FORBIDDEN:
            self._limited.pop(request, None)
            return
        message = self._scrub(reason_of(response))
        now = sent_at(response.headers) or self._clock()
        wait = rate_limit_wait(status, response.headers, message, now)
        if wait is not None:
            if named_wait(response.headers, now) is None:
                wait = min(wait * 2.0 ** self._limited[request], self._policy.cap)
                self._limited[request] += 1
            raise TransferError(f"rate limit: {message}", retry_after=wait)
        if status in wanted:
            return
        if status >= _SERVER_ERROR:
            wait = named_wait(response.headers, now)
            raise TransferError(f"GitHub answered {status}", cause=message, retry_after=wait or 0.0)
        where = response.url.partition("?")[0]  # after a redirect the query is a signature
        advice = _ADVICE.get(status, "GitHub will not accept this as it is.")
        raise TransferError(
            f"GitHub answered {status} ({message}) to {response.request.method} {where}",
            advice=_MOVED if response.is_redirect else advice,
        )

    def _unanswered(self, error: requests.RequestException, url: str) -> TransferError:
        reason = self._scrub(system_error(error))
        host = urlsplit(url).netloc
        if is_untrusted(error):
            return certificate_refused(host, reason)
        if isinstance(error, _TRANSIENT) and self._answered:
            return TransferError(f"{host} did not answer", cause=reason, retry_after=0.0)
        return TransferError(
            f"{host} does not answer",
            cause=reason,
            advice="Is the machine online, and is publish.api right?",
        )

    def _require_safe(self, url: str) -> None:
        if not self._token:
            raise ConfigError(
                "There is no GitHub token",
                advice="Set GITHUB_TOKEN (or GH_TOKEN) to one that may write the repository's contents.",
            )
        downgraded = self._api.startswith("https:") and not url.startswith("https:")
        if downgraded or not may_carry_a_token(url):
            raise TransferError(
                f"{urlsplit(url).netloc}: the token is not sent over plain http.",
                advice="Name an https address in publish.api of variants.yaml (or --api).",
            )

    def _scrub(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


@dataclass(frozen=True)
class FileBody:
    """The bytes of a file as a request's body. Each iteration reads the file again."""

    file: LocalFile
    advance: Callable[[int], None]

    def __len__(self) -> int:
        return self.file.size

    def __iter__(self) -> Iterator[bytes]:
        left = len(self)
        for block in chunks_of(self.file.path, _CHUNK):  # its errors are not retried
            yield block[:left]
            self.advance(min(len(block), left))
            left -= len(block)
            if left <= 0:
                return
        raise IntegrityError(
            f"{self.file.path}: the file got shorter while it was sent", advice="Bundle again."
        )


def _blocks_at_most(response: requests.Response, limit: int) -> Iterator[bytes]:
    """Yield a streamed body in blocks. Raises ``TransferError`` for more than ``limit`` bytes."""
    left = limit
    for block in response.iter_content(_CHUNK):
        left -= len(block)
        if left < 0:
            raise TransferError(
                f"{response.url.split('?')[0]} is larger than the {limit:,} bytes that are read at most."
            )
        yield block
