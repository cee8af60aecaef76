"""Is a variant's package up to date? A key over everything it follows from, and the package's own sha256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from builder.adapters.archive import file_digest
from builder.adapters.partfile import part_file
from builder.core.inputs import Lock
from builder.core.variant import BuildPlan
from builder.errors import IntegrityError

_NAME = "built.json"


def stamp_key(plan: BuildPlan, lock: Lock, sources: Iterable[Path]) -> str:
    """Hex sha256 over the plan, the pins, and the code and templates in ``sources``.

    Why a base was chosen is not part of it: a registry fails in changing words.
    """
    hasher = hashlib.sha256(repr(replace(plan, base_reason="")).encode())
    for key, pin in sorted(lock.pins.items()):
        hasher.update(f"{key}={pin}\n".encode())
    for file in sorted(sources):
        hasher.update(f"{file.name} {file_digest(file).sha256}\n".encode())
    return hasher.hexdigest()


def read_stamp(folder: Path, key: str, dist: Path) -> Path | None:
    """The package that was built under ``key`` and verified, if its bytes are still the same."""
    try:
        stamp = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        package = dist / str(stamp["package"])
        same = stamp["key"] == key and file_digest(package).sha256 == stamp["sha256"]
    except (OSError, IntegrityError, ValueError, KeyError, TypeError):
        return None
    return package if same else None


def write_stamp(folder: Path, key: str, package: Path) -> None:
    """Remember that ``package`` was built under ``key`` and verified."""
    stamp = {"key": key, "package": package.name, "sha256": file_digest(package).sha256}
    with part_file(folder / _NAME) as file:
        file.write(json.dumps(stamp, indent=2).encode() + b"\n")
