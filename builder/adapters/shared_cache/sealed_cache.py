"""A compile cache whose objects carry a code that only those who have a key can make.

The code is HMAC-SHA256 (RFC 2104) of the object's name and bytes. It stands before the bytes, 32 bytes long.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from builder.errors import IntegrityError, ValidationError
from builder.ports import CompileCache

VARIABLE = "ORTPACKS_COMPILE_CACHE_KEY"
"""The environment variable with the key."""

_LEAST = 16
"""The least number of characters of a key."""

_CODE = 32
"""Bytes of a code."""


class SealedCache:
    """``cache``, of which only objects with the code by ``key`` are used.

    Raises ``ValidationError`` for a short key. ``get`` and ``has`` also raise ``IntegrityError``, for an
    object with another code or none.
    """

    def __init__(self, cache: CompileCache, key: str) -> None:
        if len(key) < _LEAST:
            raise ValidationError(
                f"{VARIABLE} has fewer than {_LEAST} characters",
                cause="who may write to the cache could guess it",
                advice="Set a long random text on all machines (`openssl rand -hex 32`), or unset it.",
            )
        self.name = cache.name
        self.require, self.usage = cache.require, cache.usage
        self._cache, self._key = cache, os.fsencode(key)

    def get(self, key: str) -> bytes | None:
        """See ``ports.CompileCache.get``."""
        stored = self._cache.get(key)
        if stored is None:
            return None
        code, value = stored[:_CODE], stored[_CODE:]
        if not hmac.compare_digest(code, self._code(key, value)):
            raise IntegrityError(
                f"{self.name}: {key} was not stored with the key in {VARIABLE}",
                advice="Name an empty cache, or set the key with which this one was filled.",
            )
        return value

    def has(self, key: str) -> bool:
        """See ``ports.CompileCache.has``."""
        return self.get(key) is not None

    def put(self, key: str, value: bytes) -> None:
        """See ``ports.CompileCache.put``."""
        self._cache.put(key, self._code(key, value) + value)

    def _code(self, key: str, value: bytes) -> bytes:
        return hmac.digest(self._key, f"{key}\n".encode() + value, hashlib.sha256)
