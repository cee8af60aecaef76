"""What GitHub's refusals mean, and what to do about them.

Sources: docs.github.com "Rate limits for the REST API", "Best practices for using the REST API",
"Troubleshooting the REST API".

When a request to GitHub is tried again, and how long is waited before it.

Sources: docs.github.com "Best practices for using the REST API" and "Rate limits for the REST API".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

import requests

from builder.errors import BuilderError, TransferError
from builder.ports import Reporter

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429

_SECONDARY_LIMIT = 60.0
"""Seconds to wait at least when GitHub names no time."""

_LIMITED = re.compile("rate limit|abuse detection", re.IGNORECASE)
"""The second is what older GitHub Enterprise servers call a secondary rate limit."""

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


def rate_limit_wait(status: int, headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Seconds GitHub wants us to wait, or ``None`` when the answer is no rate limit. ``now`` is Unix time."""
    if status not in (_FORBIDDEN, _TOO_MANY):
        return None
    named = named_wait(headers, now)
    if named is not None:
        return named
    limited = status == _TOO_MANY or "Retry-After" in headers or _LIMITED.search(message) is not None
    return _SECONDARY_LIMIT if limited else None


def named_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the time that the headers name, if they do; of a time that has passed, one second."""
    after = headers.get("Retry-After", "").strip()
    if after.isdecimal():
        return float(after)
    when = _http_date(after)
    reset = headers.get("X-RateLimit-Reset", "")
    if when is None and headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        when = float(reset)
    return None if when is None else max(1.0, when - now)


def sent_at(headers: Mapping[str, str]) -> float | None:
    """Unix time of the answer by the host's own clock, which the times it names go by."""
    return _http_date(headers.get("Date", ""))


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def lacks_scope(headers: Mapping[str, str]) -> bool:
    """Whether the answer tells a classic token's scopes, and none lets it write. Other tokens have none."""
    scopes = {scope.strip() for scope in headers.get("X-OAuth-Scopes", "").split(",")} - {""}
    return bool(scopes) and not scopes & _WRITING


def may_not_write(repository: str) -> str:
    """What is wrong with a token that reads a repository and cannot write to it, and what to do."""
    return f"{repository}: the token may read the repository but not write to it. It needs {_NEEDED}"


def refusal(response: requests.Response, reason: str) -> str:
    """What was refused, why, and what to do; ``reason`` are GitHub's words."""
    where = response.url.partition("?")[0]  # behind a redirect the rest is a signature
    said = f"GitHub answered {response.status_code} ({reason}) to {response.request.method} {where}"
    if response.is_redirect:
        return f"{said}. The repository has moved: correct publish.repository in variants.yaml."
    return f"{said}. {_ADVICE.get(response.status_code, 'GitHub will not accept this as it is.')}"


def reason_of(response: requests.Response) -> str:
    """GitHub's words for a refusal, or the status line's."""
    try:
        value: object = response.json()
    except ValueError:
        return response.reason or "no reason given"
    return explain(value) or response.reason


def explain(value: object) -> str:
    """GitHub's own words in an error body: ``message`` and the codes of ``errors``."""
    if not isinstance(value, dict):
        return ""
    details = value.get("errors")
    codes = (
        [str(item.get("code", "")) for item in details if isinstance(item, dict)]
        if isinstance(details, list)
        else []
    )
    return ", ".join(part for part in [str(value.get("message", "")), *codes] if part)


V = TypeVar("V")


class Fault(Exception):  # noqa: N818 - not an error yet: the next attempt may do
    """An attempt that may do better next time; ``error`` is what it is when there is no next time.

    ``wait`` seconds are to pass before it: exactly, or with ``grows`` twice as many each time.
    """

    def __init__(
        self,
        message: str,
        *,
        wait: float | None = None,
        grows: bool = False,
        error: type[BuilderError] = TransferError,
    ) -> None:
        self.wait = wait
        self.grows = grows
        self.error = error
        super().__init__(message)


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

    def pause(self, fault: Fault, number: int) -> float:
        """Seconds to wait after the ``number``-th attempt."""
        if fault.wait is not None and not fault.grows:
            return fault.wait
        first = self.first if fault.wait is None else fault.wait
        return min(first * 2.0 ** (number - 1), max(first, self.cap))


class Retries:
    """Attempts with pauses between them, and writes that keep apart; ``clock`` tells Unix time."""

    def __init__(
        self,
        *,
        reporter: Reporter,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        patience: Patience,
    ) -> None:
        self._reporter = reporter
        self._sleep = sleep
        self._clock = clock
        self._patience = patience
        self._last_write: float | None = None

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

    def pace(self) -> None:
        """Wait until the next write may be sent, and count it as sent."""
        if self._last_write is not None:
            self._sleep(max(0.0, self._last_write + self._patience.between_writes - self._clock()))
        self._last_write = self._clock()

    def _pause(self, what: str, fault: Fault, number: int) -> None:
        patience = self._patience
        wait = patience.pause(fault, number)
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
