"""Are a variant's packages up to date? A key over all they follow from, and their files' own sha256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from builder.adapters.digests import file_digest
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


def read_stamp(folder: Path, key: str, dist: Path) -> tuple[Path, ...]:
    """The packages that were built under ``key`` and verified, if the bytes of all of their files still are.

    Else none.
    """
    try:
        stamp = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        same = stamp["key"] == key and all(
            file_digest(dist / name).sha256 == sha256 for name, sha256 in stamp["files"].items()
        )
        packages = tuple(dist / str(name) for name in stamp["packages"])
    except (OSError, IntegrityError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return packages if same and all(package.name in stamp["files"] for package in packages) else ()


def write_stamp(folder: Path, key: str, packages: Sequence[Path], files: Sequence[Path]) -> None:
    """Remember that ``packages``, which consist of ``files``, were built under ``key`` and verified."""
    stamp = {
        "key": key,
        "packages": [package.name for package in packages],
        "files": {file.name: file_digest(file).sha256 for file in files},
    }
    with part_file(folder / _NAME) as file:
        file.write(json.dumps(stamp, indent=2).encode() + b"\n")
