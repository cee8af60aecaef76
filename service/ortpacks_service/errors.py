"""Errors that are answers to requests."""

from __future__ import annotations

import reprlib


class RequestError(Exception):
    """A request that cannot be served. ``code`` is the HTTP status."""

    def __init__(self, what: str, code: int = 400, retry_after: int | None = None) -> None:
        """``retry_after`` is the number of seconds after which the same request may succeed."""
        super().__init__(what)
        self.what = what
        self.code = code
        self.retry_after = retry_after


def shown(value: object) -> str:
    """Return a value of JSON as a short text; ``str`` fails for a list within a thousand lists."""
    return value if isinstance(value, str) else reprlib.repr(value)
