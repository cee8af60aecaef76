"""The work of the verb bump: the version that builder, client, runtime layer and service share."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from builder.builds.wiring import Wiring
from builder.errors import ConfigError, NothingToDoError, ValidationError
from builder.files.atomic_write import write_file

VERSIONED = {
    "builder/client/__init__.py": "__version__ = ",
    "pyproject.toml": "version = ",
    "runtime/pyproject.toml": "version = ",
    "service/pyproject.toml": "version = ",
}
"""The files that contain the version, and the text before the version on its line."""

CHANGELOG = "CHANGELOG.md"

_PARTS = ("major", "minor", "patch")

_UNRELEASED = "## Unreleased\n"


def bump_version(wiring: Wiring, part: str, now: datetime) -> None:
    """Write the next version to every file of ``VERSIONED`` and to the changelog.

    Raises ``ValidationError`` for an unknown part, ``ConfigError`` if files name different versions, and
    ``NothingToDoError`` if the changelog's unreleased section is empty.
    """
    if part not in _PARTS:
        raise ValidationError(f"{part!r} is no part of a version.", advice=f"Say {', '.join(_PARTS)}.")
    texts = {name: (wiring.root / name).read_text(encoding="utf-8") for name in (*VERSIONED, CHANGELOG)}
    before = version_in(texts)
    after = _next(before, _PARTS.index(part))
    made = {
        name: texts[name].replace(f'{start}"{before}"', f'{start}"{after}"', 1)
        for name, start in VERSIONED.items()
    }
    made[CHANGELOG] = _released(texts[CHANGELOG], after, now)
    for name, text in made.items():
        write_file(Path(wiring.root, name), text.encode())
    wiring.reporter.say(f"{before} → {after} in {', '.join(made)}: commit them")


def version_in(texts: dict[str, str]) -> str:
    """Return the version that all files of ``VERSIONED`` name.

    Raises ``ConfigError`` if they do not agree.
    """
    found = {}
    for name, start in VERSIONED.items():
        line = re.search(rf'^{re.escape(start)}"([0-9]+\.[0-9]+\.[0-9]+)"$', texts[name], re.MULTILINE)
        found[name] = line[1] if line else "none"
    if len({*found.values()}) > 1 or "none" in found.values():
        told = ", ".join(f"{name} says {version}" for name, version in found.items())
        raise ConfigError(
            f"The version differs between files: {told}.", advice="Make them equal by hand first."
        )
    return next(iter(found.values()))


def _next(version: str, part: int) -> str:
    numbers = [*map(int, version.split("."))]
    return ".".join(map(str, [*numbers[:part], numbers[part] + 1, *[0] * (2 - part)]))


def _released(changelog: str, version: str, now: datetime) -> str:
    before, found, rest = changelog.partition(_UNRELEASED)
    if not found or not rest.partition("\n## ")[0].strip():
        raise NothingToDoError(
            f"{CHANGELOG} has nothing under {_UNRELEASED.strip()!r}.",
            advice="Write there what users will notice, then run it again.",
        )
    return f"{before}{_UNRELEASED}\n## {version} ({now:%Y-%m-%d})\n{rest}"
