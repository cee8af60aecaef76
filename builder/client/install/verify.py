"""Hashes an installed package again and compares it with its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional, Tuple

from builder.client.files.digest import sha256_of
from builder.client.files.extract import MANIFEST, inside
from builder.client.files.folder import INFO
from builder.errors import ConfigError, IntegrityError
from builder.formats.manifest import FileEntry, Manifest, loads


@dataclass(frozen=True)
class Verdict:
    """What was found: no problems means every byte is as the manifest says."""

    folder: Path
    manifest: Manifest
    problems: Tuple[str, ...]


def verify(folder: Path) -> Verdict:
    """Read every file below ``folder``. ``IntegrityError`` when there is no readable manifest."""
    manifest = manifest_in(folder)
    problems = [*_wrong_files(folder, manifest), *_strangers(folder, manifest)]
    return Verdict(folder, manifest, tuple(problems))


def manifest_in(folder: Path) -> Manifest:
    """The manifest of the package in ``folder``. Raises ``IntegrityError`` or ``ConfigError``."""
    path = folder / MANIFEST
    try:
        return loads(path.read_text(encoding="utf-8"), folder.name)
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path}: cannot be read: {error}. Run install again.") from error


def whole(folder: Path) -> Optional[Manifest]:
    """The manifest of the package in ``folder``, if there is one, complete and unchanged."""
    try:
        verdict = verify(folder)
    except (IntegrityError, ConfigError):
        return None
    return None if verdict.problems else verdict.manifest


def _wrong_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    for entry in manifest.files:
        problem = _problem(folder.joinpath(*inside(f"{folder.name}/{entry.path}", folder.name)), entry)
        if problem:
            yield f"{entry.path}: {problem}"


def _problem(path: Path, entry: FileEntry) -> str:
    if path.is_symlink() or not path.is_file():
        return "is missing or not a regular file"
    size = path.stat().st_size
    if size != entry.size:
        return f"size differs: wanted {entry.size} bytes, got {size}"
    digest = sha256_of(path)
    return "" if digest == entry.sha256 else f"sha256 differs: wanted {entry.sha256}, got {digest}"


def _strangers(folder: Path, manifest: Manifest) -> Iterator[str]:
    """A library that does not belong here could be loaded in the place of one that does."""
    known = {entry.path for entry in manifest.files} | {MANIFEST, INFO}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in known and not (path.is_dir() and not path.is_symlink()):
            yield f"{name}: does not belong to the package"
