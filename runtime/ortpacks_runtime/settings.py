"""The settings of a session: arguments, else the environment, else ``config.toml``, else the defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

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

_MOST_DIGITS, _MOST_COUNT, _MOST_THREADS = 4, 10**9, 1024
"""The most digits of a GPU's number, the largest number of other settings, and of threads.

ONNX Runtime starts as many threads as it is told to: a million of them take the machine's memory.
"""

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
    return Settings(**_values(found))


def model_settings(file: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return those of ``keys`` that the table ``ai`` of a model's own TOML file sets.

    Raises ``ProviderError`` for a file that cannot be read, another key or a wrong value.
    """
    return _values(_entries(_table(file), keys, file))


_Entries = Mapping[str, tuple[object, str]]
"""Value and origin of settings by name. Messages for a wrong value begin with its origin."""


def _values(entries: _Entries) -> dict[str, Any]:
    return {name: _READERS[name](value, origin) for name, (value, origin) in entries.items()}


def _configured(env: Mapping[str, str]) -> _Entries:
    named = env.get(CONFIG)
    file = Path(named or "config.toml")
    if not named and not os.path.isfile(file):  # noqa: PTH113 - is_file raises in a folder closed to this user
        return {}
    table = _table(file, f"{CONFIG}={named}" if named else "config.toml")
    keys = tuple(field.name for field in fields(Settings))
    if not named:  # an application's file may have keys of its own in this table
        table = {key: value for key, value in table.items() if get_close_matches(key, keys, 1)}
    return _entries(table, keys, file)


def _table(file: Path, origin: str = "") -> Mapping[str, object]:
    """Return the table ``ai`` of a TOML file; ``origin`` names the file if it cannot be read."""
    try:
        # Editors on Windows write a byte order mark, which TOML does not have.
        table = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("ai", {})
    except OSError as error:
        raise ProviderError(f"{origin or file}: {error.strerror or error}. Name a TOML file.") from error
    except ValueError as error:
        raise ProviderError(f"{file}: not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ProviderError(f"{file}: ai: a table is wanted, like [ai]")
    return table


def _entries(table: Mapping[str, object], keys: tuple[str, ...], file: Path) -> _Entries:
    """Return the table's entries. Raises ``ProviderError`` for a key that is not among ``keys``."""
    return {
        one_of(key, keys, f"{file}: [ai]"): (value, f"{file}: ai.{key} = {value!r}")
        for key, value in table.items()
    }


def _text(value: object, origin: str) -> str:
    if isinstance(value, str) and value.isprintable():
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
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    if text.startswith(("GPU-", "MIG-")):
        return text
    raise ProviderError(f"{origin}: a GPU's number is wanted, 0 or more, or its UUID, GPU-…")


def _flag(value: object, origin: str) -> bool:
    flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise ProviderError(f"{origin}: true or false is wanted")
    return flag


def _count(value: object, origin: str, most: int = _MOST_COUNT) -> int:
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(most)):
        value = int(text)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    raise ProviderError(f"{origin}: a whole number from 1 to {most} is wanted")


def _threads(value: object, origin: str) -> int:
    return _count(value, origin, _MOST_THREADS)


_READERS = {
    "provider": _provider,
    "device": _device,
    "level": _level,
    "strict": _flag,
    "threads": _threads,
    "model_name": _text,
    "embedding_dim": _count,
    "auto_download": _flag,
}
