"""Errors that are answers to requests."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping


class RequestError(Exception):
    """A request that cannot be served. ``code`` is the HTTP status."""

    def __init__(
        self, what: str, code: int = 400, retry_after: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        """``retry_after`` is the number of seconds after which the same request may succeed."""
        super().__init__(what)
        self.what = what
        self.code = code
        self.headers = {**(headers or {}), **({"Retry-After": str(retry_after)} if retry_after else {})}


def shown(value: object) -> str:
    """Return a value of JSON as a short text; ``str`` fails for a list within a thousand lists."""
    return value if isinstance(value, str) else reprlib.repr(value)
