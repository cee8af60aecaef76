"""Requests to GitHub's API: one attempt, and when to try again.

The token leaves this module in the Authorization header only; every message is scrubbed of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from builder.adapters.github_answers import rate_limit_wait, reason_of, refusal
from builder.core.address import API, API_FORM, may_carry_a_token, without_userinfo
from builder.core.ports import Reporter
from builder.errors import BuilderError, ConfigError, TransferError

_TOKEN = re.compile(r"[\x21-\x7e]+")
_TIMEOUT = (30, 300)
"""Seconds to connect, and between two bytes: GitHub thinks a while after the last byte of a large asset."""
_SERVER_ERROR = 500

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to keep trying; all times in seconds."""

    attempts: int = 8
    first: float = 10.0
    cap: float = 300.0
    """Longest pause of our own between two attempts."""
    longest: float = 3600.0
    """Longest pause GitHub may ask for; more is an error that says when to come back."""
    between_writes: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A wanted answer. ``json`` is ``None`` for an empty body."""

    status: int
    json: object


class Fault(Exception):  # noqa: N818 - not an error yet: the next attempt may do
    """An attempt that may do better next time; ``error`` is what it is when there is no next time."""

    def __init__(
        self, message: str, *, wait: float | None = None, error: type[BuilderError] = TransferError
    ) -> None:
        self.wait = wait
        self.error = error
        super().__init__(message)


class _Bearer(AuthBase):
    """Sets the header itself, so that a ``.netrc`` cannot replace it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class GitHubHttp:
    """GitHub's API at ``api`` with ``token``; ``sleep`` and ``clock`` (Unix time) are the caller's."""

    def __init__(
        self,
        *,
        api: str,
        token: str,
        reporter: Reporter,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        patience: Patience | None = None,
    ) -> None:
        """Raises ``ConfigError`` for an address that no token may go to, or a token that cannot be one.

        A missing token is told by the first call.
        """
        if API.fullmatch(api.rstrip("/")) is None:
            raise ConfigError(
                f"--api (or publish.api of variants.yaml) is {without_userinfo(api)!r}: the token would go "
                f"there. Allowed: {API_FORM}."
            )
        if token and _TOKEN.fullmatch(token) is None:
            raise ConfigError(
                "The GitHub token holds blanks or line breaks; set it again (it is not shown here)."
            )
        self._api = api.rstrip("/")
        self._token = token
        self._reporter = reporter
        self._sleep = sleep
        self._clock = clock
        self._patience = patience or Patience()
        self._session = requests.Session()
        self._answered = False
        self._last_write: float | None = None

    def call(
        self,
        method: str,
        path: str,
        *,
        wanted: Collection[int],
        content: Mapping[str, object] | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> Reply:
        """One request below the API's base, repeated while that may help: for what may be sent twice."""
        return self.persist(
            f"{method} {path}",
            lambda: self.attempt(method, path, wanted=wanted, content=content, params=params),
        )

    def persist(
        self, what: str, attempt: Callable[[], V], landed: Callable[[], V | None] = lambda: None
    ) -> V:
        """The result of ``attempt``, tried again after a pause on ``Fault``.

        ``landed`` is asked before each further attempt whether the last one went through after all.
        """
        number = 1
        while True:
            try:
                return attempt()
            except Fault as fault:
                self._pause(what, fault, number)
            result = landed()
            if result is not None:
                return result
            number += 1

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
    ) -> Reply:
        """One request. Raises ``Fault`` when trying again may help and ``TransferError`` when not.

        ``url`` is a path below the API's base, or whole: uploads go to another host. ``data`` of ``length``
        bytes is sent as it is read.
        """
        self._require_token()
        url = self._api + url if url.startswith("/") else url
        self._refuse_downgrade(url)
        self._pace(method)
        try:
            response = self._session.request(
                method,
                url,
                params=params,
                json=content,
                data=data,
                headers=_headers(length),
                auth=_Bearer(self._token),
                timeout=_TIMEOUT,
                # A redirected write would become a GET, and the token would go where we did not send it.
                allow_redirects=method == "GET",
            )
        except requests.RequestException as error:
            raise self._unanswered(error, url) from None
        self._answered = True
        return self._judge(response, wanted)

    def _judge(self, response: requests.Response, wanted: Collection[int]) -> Reply:
        if response.status_code in wanted:
            return Reply(status=response.status_code, json=self._json(response))
        message = self._scrub(reason_of(response))
        wait = rate_limit_wait(response.status_code, response.headers, message, self._clock())
        if wait is not None:
            raise Fault(f"rate limit: {message}", wait=wait)
        if response.status_code >= _SERVER_ERROR:
            raise Fault(f"GitHub answered {response.status_code}: {message}")
        raise TransferError(refusal(response, message))

    def _json(self, response: requests.Response) -> object:
        if not response.content:
            return None
        try:
            value: object = response.json()
        except ValueError:
            raise Fault("GitHub's answer was cut short") from None
        return value

    def _unanswered(self, error: requests.RequestException, url: str) -> Exception:
        reason = self._scrub(_root_cause(error))
        host = urlsplit(url).netloc
        transient = isinstance(
            error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
        )
        if isinstance(error, requests.exceptions.SSLError):
            return TransferError(f"{host}: the TLS certificate was not accepted ({reason}).")
        if transient and self._answered:
            return Fault(f"{host} did not answer: {reason}")
        return TransferError(
            f"{host} does not answer: {reason}. Is the machine online, and is publish.api right?"
        )

    def _pause(self, what: str, fault: Fault, number: int) -> None:
        patience = self._patience
        wait = fault.wait if fault.wait is not None else min(patience.first * 2 ** (number - 1), patience.cap)
        if number >= patience.attempts:
            raise fault.error(
                f"{what}: {fault}. Gave up after {number} attempts; run it again to go on."
            ) from None
        if wait > patience.longest:
            raise TransferError(
                f"{what}: {fault}. GitHub asks to wait {wait:.0f} s; run it again then."
            ) from None
        self._reporter.warn(f"{what}: {fault}; attempt {number + 1} of {patience.attempts} in {wait:.0f} s")
        self._sleep(wait)

    def _pace(self, method: str) -> None:
        if method == "GET":
            return
        if self._last_write is not None:
            self._sleep(max(0.0, self._last_write + self._patience.between_writes - self._clock()))
        self._last_write = self._clock()

    def _require_token(self) -> None:
        if not self._token:
            raise ConfigError(
                "No GitHub token: set GITHUB_TOKEN (or GH_TOKEN) to one that may write the repository's "
                "contents."
            )

    def _refuse_downgrade(self, url: str) -> None:
        downgraded = self._api.startswith("https:") and not url.startswith("https:")
        if downgraded or not may_carry_a_token(url):
            raise TransferError(f"{urlsplit(url).netloc}: the token is not sent over plain http.")

    def _scrub(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


def _headers(length: int | None) -> dict[str, str]:
    headers = {
        "Accept": "application/vnd.github+json",
        "User-Agent": "ortpacks",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    if length is not None:
        headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
    return headers


def _root_cause(error: BaseException) -> str:
    """The operating system's word for it, without the layers of wrapping around."""
    while not (isinstance(error, OSError) and error.strerror):
        deeper = error.__cause__ or error.__context__
        if deeper is None:
            return str(error)
        error = deeper
    return error.strerror
