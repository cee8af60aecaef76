"""A cache for BuildKit's layers outside the builder, as ``--cache`` names it: ``type=gha,scope=legacy``.

Only caches that are named alike for reading and for writing; ``type=local`` is not. Source: the page "Cache
storage backends" of Docker's manual, for the types and for the keys that are secrets.
"""

from __future__ import annotations

import re

from builder.errors import ValidationError

TYPES = ("gha", "registry", "s3", "azblob")
_SECRETS = ("token", "ghtoken", "access_key_id", "secret_access_key", "session_token")
_WORDS = re.compile(r"[a-z]+=[^,\s]+(?:,[a-z0-9_-]+=[^,\s]+)*")


def require_cache(text: str) -> str:
    """``text``, if it is a cache without secrets. Raises ``ValidationError``, which repeats no secret."""
    words = [part.split("=", 1) for part in text.split(",")] if _WORDS.fullmatch(text) else []
    keys = {key for key, *_ in words}
    found = sorted(keys.intersection(_SECRETS))
    if found:
        raise ValidationError(
            f"--cache holds {', '.join(found)}: a command line is no place for secrets. Leave them out; "
            "buildx reads them from its environment (ACTIONS_RUNTIME_TOKEN, AWS_SECRET_ACCESS_KEY …)."
        )
    if not words or words[0] not in [["type", name] for name in TYPES]:
        raise ValidationError(
            f"--cache {text!r} is no cache of BuildKit's. Say type= first, one of {', '.join(TYPES)}, "
            "then what it needs: type=gha,scope=legacy."
        )
    return text
