"""Rules for GitHub's refusals: their meaning, the advice to the user, and the wait before the next attempt.

Sources: docs.github.com "Rate limits for the REST API", "Best practices for using the REST API",
"Troubleshooting the REST API".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import requests

from builder.adapters.http_session import named_wait
from builder.errors import TransferError

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


def refusal(response: requests.Response, reason: str) -> TransferError:
    """Return the error for a refused request. ``reason`` is GitHub's own text."""
    where = response.url.partition("?")[0]  # after a redirect the query is a signature
    what = f"GitHub answered {response.status_code} ({reason}) to {response.request.method} {where}"
    advice = _ADVICE.get(response.status_code, "GitHub will not accept this as it is.")
    return TransferError(what, advice=_MOVED if response.is_redirect else advice)


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
    details = value.get("errors")
    codes = (
        [str(item.get("code", "")) for item in details if isinstance(item, dict)]
        if isinstance(details, list)
        else []
    )
    return ", ".join(part for part in [str(value.get("message", "")), *codes] if part)
