"""Client of GitHub's API, which repeats requests after temporary failures (``adapters.github.refusals``).

The token leaves this module in the Authorization header only; the token is removed from every message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests

from builder.adapters.github.refusals import rate_limit_wait, reason_of, refusal
from builder.adapters.http_session import (
    TRANSIENT,
    Bearer,
    CheckedSession,
    certificate_refused,
    is_untrusted,
    named_wait,
    read_at_most,
    sent_at,
    system_error,
)
from builder.adapters.retries import Retrier, RetryPolicy, TransientFailure
from builder.errors import ConfigError, TransferError
from builder.formats.text import may_carry_a_token, redacted
from builder.ports import Reporter
from builder.project.kinds import API, API_FORM

_TOKEN = re.compile(r"[\x21-\x7e]+")

_INSTALLATION = "ghs_"
"""The prefix of installation access tokens: docs.github.com "About authentication to GitHub"."""

_TIMEOUT = (30, 300)
"""The longest waits in seconds: to connect, and between two bytes. GitHub is slow after a large asset."""

_OK, _FORBIDDEN, _SERVER_ERROR = 200, 403, 500

_JSON, _BYTES = "application/vnd.github+json", "application/octet-stream"

_READING = ("GET", "HEAD")


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
        policy: RetryPolicy | None = None,
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
        self.retrier = Retrier(reporter=reporter, sleep=sleep, policy=policy or RetryPolicy())
        self._clock = clock
        self._last_write: float | None = None
        self._session = CheckedSession()
        self._answered = False

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
        return self.retrier.retry(
            f"{method} {path}",
            lambda: self.attempt(method, path, wanted=wanted, params=params),
        )

    def _pace(self) -> None:
        """Wait until the next write may be sent, and record the time of that write."""
        if self._last_write is not None:
            pause = self._last_write + self.retrier.policy.between_writes - self._clock()
            self.retrier.sleep(max(0.0, pause))
        self._last_write = self._clock()

    def attempt(
        self,
        method: str,
        url: str,
        *,
        wanted: Collection[int],
        content: Mapping[str, object] | None = None,
        params: Mapping[str, str | int] | None = None,
        data: Iterable[bytes] | None = None,
        length: int | None = None,
    ) -> GitHubReply:
        """Send a request once and return the answer, whose status must be in ``wanted``.

        ``url`` is a path below the API's base, or a whole URL, since uploads go to another host. ``data`` of
        ``length`` bytes is streamed. Raises ``TransientFailure`` when another attempt may succeed, else
        ``TransferError``.
        """
        headers = _headers(_JSON, length)
        response = self._send(method, url, headers, params=params, content=content, data=data)
        self._require(response, wanted)
        return GitHubReply(status=response.status_code, json=self._json(response), headers=response.headers)

    def attempt_bytes(self, url: str, limit: int) -> bytes:
        """Send a GET request once and return the body; a redirect to another host gets no token.

        Raises what ``attempt`` raises, and ``TransferError`` for more than ``limit`` bytes.
        """
        with self._send("GET", url, _headers(_BYTES), stream=True) as response:
            try:
                self._require(response, (_OK,))
                return read_at_most(response, limit)
            except requests.RequestException as error:
                raise self._unanswered(error, response.url) from None

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str | int] | None = None,
        content: Mapping[str, object] | None = None,
        data: Iterable[bytes] | None = None,
        stream: bool = False,
    ) -> requests.Response:
        self._require_token()
        url = self._api + url if url.startswith("/") else url
        self._refuse_downgrade(url)
        if method not in _READING:
            self._pace()
        try:
            response = self._session.request(
                method,
                url,
                params=params,
                json=content,
                data=data,
                headers=headers,
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
        if status in wanted and status != _FORBIDDEN:
            return
        message = self._scrub(reason_of(response))
        now = sent_at(response.headers) or self._clock()
        wait = rate_limit_wait(status, response.headers, message, now)
        if wait is not None:
            named = named_wait(response.headers, now) is not None
            raise TransientFailure(f"rate limit: {message}", wait=wait, grows=not named)
        if status in wanted:
            return
        if status >= _SERVER_ERROR:
            wait = named_wait(response.headers, now)
            raise TransientFailure(f"GitHub answered {status}: {message}", wait=wait)
        raise refusal(response, message)

    def _json(self, response: requests.Response) -> object:
        if not response.content:
            return None
        try:
            value: object = response.json()
        except (ValueError, RecursionError):
            raise TransientFailure("GitHub's answer was cut short") from None
        return value

    def _unanswered(self, error: requests.RequestException, url: str) -> Exception:
        reason = self._scrub(system_error(error))
        host = urlsplit(url).netloc
        if is_untrusted(error):
            return certificate_refused(host, reason)
        if isinstance(error, TRANSIENT) and self._answered:
            return TransientFailure(f"{host} did not answer: {reason}")
        return TransferError(
            f"{host} does not answer",
            cause=reason,
            advice="Is the machine online, and is publish.api right?",
        )

    def _require_token(self) -> None:
        if not self._token:
            raise ConfigError(
                "There is no GitHub token",
                advice="Set GITHUB_TOKEN (or GH_TOKEN) to one that may write the repository's contents.",
            )

    def _refuse_downgrade(self, url: str) -> None:
        downgraded = self._api.startswith("https:") and not url.startswith("https:")
        if downgraded or not may_carry_a_token(url):
            raise TransferError(
                f"{urlsplit(url).netloc}: the token is not sent over plain http.",
                advice="Name an https address in publish.api of variants.yaml (or --api).",
            )

    def _scrub(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


def _headers(accept: str, length: int | None = None) -> dict[str, str]:
    headers = {
        "Accept": accept,
        "User-Agent": "ortpacks",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    if length is not None:
        headers |= {"Content-Type": _BYTES, "Content-Length": str(length)}
    return headers
