"""The settings of a session: arguments, else the environment, else ``config.toml``, else the defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path

from ortpacks_runtime.providers import AUTO, ProviderError, one_of, provider_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEVELS = ("low", "medium", "high")
"""Names of the levels.

``low`` takes the least memory and time, ``medium`` loses no measured quality, ``high`` keeps the model's own
numbers.
"""

CONFIG = "ORTPACKS_CONFIG"

VARIABLES = {
    "provider": ("ORTPACKS_PROVIDER", "EXECUTION_PROVIDER"),
    "device": ("ORTPACKS_DEVICE", "GPU_DEVICE"),
    "level": ("ORTPACKS_LEVEL",),
    "strict": ("ORTPACKS_STRICT",),
    "threads": ("ORTPACKS_THREADS",),
    "model_name": ("ORTPACKS_MODEL_NAME",),
    "embedding_dim": ("ORTPACKS_EMBEDDING_DIM",),
    "auto_download": ("ORTPACKS_AUTO_DOWNLOAD",),
}
"""Environment variables of each setting; the first that is set and not empty counts."""

_DEFAULT_PROVIDER = "ORTPACKS_DEFAULT_PROVIDER"
"""Variable with the provider that is used if nothing else names one; images for the CPU have it."""

_MOST_DIGITS = 4
"""The most digits of a GPU's number."""

_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


@dataclass(frozen=True)
class Settings:
    """The settings with which a session is opened."""

    provider: str = AUTO
    device: int | str | None = None
    """A GPU by its number in CUDA's order or its UUID; ``None``: the GPU that fits best."""
    level: str = "medium"
    strict: bool = False
    """Whether a session on another provider than the requested one is an error."""
    model_name: str | None = None
    embedding_dim: int | None = None
    auto_download: bool = False
    """Has no effect: no model is downloaded. If the service lacks its model, its message says so."""
    threads: int | None = None
    """Threads that compute on the CPU; ``None``: one for each core, even if a container may use fewer."""


def settings(given: Mapping[str, object], env: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings; ``given`` are the arguments, of which ``None`` counts as not given.

    ``config.toml`` is read from the process's current folder, or from the file that ``ORTPACKS_CONFIG``
    names; only its table ``ai`` counts. ``ORTPACKS_DEFAULT_PROVIDER`` replaces the default ``auto``.

    Raises ``ProviderError`` for a wrong value, with its origin, and for an unknown key: in the current
    folder's file only for a key that resembles a known one.
    """
    found: dict[str, tuple[object, str]] = {}
    if env.get(_DEFAULT_PROVIDER):
        found["provider"] = (env[_DEFAULT_PROVIDER], _DEFAULT_PROVIDER)
    found |= _configured(env)
    for name, variables in VARIABLES.items():
        variable = next((one for one in variables if env.get(one)), None)
        if variable is not None:
            found[name] = (env[variable], variable)
    found |= {name: (value, f"{name}={value!r}") for name, value in given.items() if value is not None}
    return Settings(**{name: _READERS[name](value, origin) for name, (value, origin) in found.items()})  # type: ignore[arg-type]


def _configured(env: Mapping[str, str]) -> Mapping[str, tuple[object, str]]:
    named = env.get(CONFIG)
    file = Path(named or "config.toml")
    if not named and not file.is_file():
        return {}
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("ai", {})
    except OSError as error:
        raise ProviderError(f"{CONFIG}={named}: {error.strerror or error}. Name a TOML file.") from error
    except ValueError as error:
        raise ProviderError(f"{file}: not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ProviderError(f"{file}: ai: a table is wanted, like [ai]")
    keys = tuple(field.name for field in fields(Settings))
    if not named:  # an application's file may have keys of its own in this table
        table = {key: value for key, value in table.items() if get_close_matches(key, keys, 1)}
    return {
        one_of(key, keys, f"{file}: [ai]"): (value, f"{file}: ai.{key} = {value!r}")
        for key, value in table.items()
    }


def _text(value: object, origin: str) -> str:
    if isinstance(value, str):
        return value
    raise ProviderError(f"{origin}: a text is wanted")


def _provider(value: object, origin: str) -> str:
    return provider_of(_text(value, origin), origin)


def _level(value: object, origin: str) -> str:
    return one_of(_text(value, origin).strip().lower(), LEVELS, origin)


def _device(value: object, origin: str) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    if text.startswith(("GPU-", "MIG-")):
        return text
    raise ProviderError(f"{origin}: a GPU's number is wanted, 0 or more, or its UUID, GPU-…")


def _flag(value: object, origin: str) -> bool:
    flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise ProviderError(f"{origin}: true or false is wanted")
    return flag


def _count(value: object, origin: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) == 0:
        raise ProviderError(f"{origin}: a whole number above 0 is wanted")
    return int(text)


_READERS = {
    "provider": _provider,
    "device": _device,
    "level": _level,
    "strict": _flag,
    "threads": _count,
    "model_name": _text,
    "embedding_dim": _count,
    "auto_download": _flag,
}
