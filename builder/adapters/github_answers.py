"""What GitHub's refusals mean, and what to do about them.

Sources: docs.github.com "Rate limits for the REST API", "Best practices for using the REST API",
"Troubleshooting the REST API".
"""

from __future__ import annotations

from collections.abc import Mapping

import requests

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_SECONDARY_LIMIT = 60.0
"""Seconds to wait at least when GitHub names no time."""
_ADVICE = {
    _UNAUTHORIZED: "The token is wrong, expired or revoked: make a new one and set GITHUB_TOKEN.",
    _FORBIDDEN: "The token is valid but may not do this: it needs Contents: write on the repository "
    "(a classic token the scope repo; a workflow `permissions: contents: write`).",
    _NOT_FOUND: "The repository does not exist, or the token may not see it: check publish.repository and "
    "what the token covers. A tag on a commit that changes workflows needs Workflows: write too.",
}


def rate_limit_wait(status: int, headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Seconds GitHub wants us to wait, or ``None`` when the answer is no rate limit. ``now`` is Unix time."""
    if status not in (_FORBIDDEN, _TOO_MANY):
        return None
    after = headers.get("Retry-After", "")
    if after.isdigit():
        return float(after)
    reset = headers.get("X-RateLimit-Reset", "")
    if headers.get("X-RateLimit-Remaining") == "0" and reset.isdigit():
        return max(1.0, float(reset) - now)
    limited = status == _TOO_MANY or "rate limit" in message.lower()
    return _SECONDARY_LIMIT if limited else None


def refusal(response: requests.Response, reason: str) -> str:
    """What was refused, why, and what to do; ``reason`` are GitHub's words."""
    said = f"GitHub answered {response.status_code} ({reason}) to {response.request.method} {response.url}"
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
