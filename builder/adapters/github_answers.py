"""What GitHub's refusals mean, and what to do about them.

Sources: docs.github.com "Rate limits for the REST API", "Best practices for using the REST API",
"Troubleshooting the REST API".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import requests

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
