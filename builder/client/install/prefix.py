"""The prefix: the folder that packages are installed in.

``versions/<package>-<sha12>/`` holds one whole package each, ``current`` (or ``current.txt``) names the one
in use, ``gpu-info.json`` tells what was found out about the machine. All else of ours lies in ``.ortpacks/``:
the lock, the history, what has arrived, and what is being made. The rest of the folder may be another one's:
nothing outside these names is ever looked at.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, Mapping

from builder.errors import IntegrityError
from builder.files.digest import write_new
from builder.files.disk import remove, sync_file
from builder.files.download import validator_file
from builder.formats.index import IndexPackage
from builder.formats.manifest import FOLDER_MODE, file_mode
from builder.formats.package_names import stem
from builder.formats.parts import StoredFile

INFO = "gpu-package-info.json"

_STATE = ".ortpacks"

_LIBRARY = ".library"


@dataclass(frozen=True)
class Prefix:
    """Paths below one prefix."""

    root: Path

    @property
    def current(self) -> Path:
        """The link to the package in use."""
        return self.root / "current"

    @property
    def pointer(self) -> Path:
        """The file that names the package in use, where links cannot be made."""
        return self.root / "current.txt"

    @property
    def gpu_info(self) -> Path:
        """What was found out about the machine."""
        return self.root / "gpu-info.json"

    @property
    def state(self) -> Path:
        """The folder of the client's own files."""
        return self.root / _STATE

    @property
    def history(self) -> Path:
        """Names of the packages that were in use, oldest first."""
        return self.state / "history"

    @property
    def lock(self) -> Path:
        """The lock file; whoever changes anything holds it."""
        return self.state / "lock"

    @property
    def versions(self) -> Path:
        """Where unpacked packages lie."""
        return self.root / "versions"

    @property
    def downloads(self) -> Path:
        """Where archives arrive, and the libraries taken out of wheels."""
        return self.state / "downloads"

    @property
    def parts(self) -> Path:
        """Where things are made before they get their names."""
        return self.state / "parts"

    def folder(self, package: IndexPackage) -> Path:
        """Where this very package lies unpacked: its bytes are part of the name."""
        return self.versions / f"{top_of(package)}-{package.sha256[:12]}"

    def download(self, package: IndexPackage) -> Path:
        """Where this very package's archive arrives, joined where it was cut."""
        return self.piece(StoredFile(package.file, package.size, package.sha256))

    def piece(self, part: StoredFile) -> Path:
        """Where one part of an archive arrives."""
        return self.downloads / f"{part.sha256[:12]}-{part.file}.part"

    def library(self, sha256: str) -> Path:
        """Where a library of a wheel waits, whole, until its package is complete."""
        return self.downloads / f"{sha256}{_LIBRARY}"

    def part(self, name: str) -> Path:
        """The path at which ``name`` is made; it holds the process number."""
        return self.parts / f"{name}-{os.getpid()}"


def default_prefix(env: Mapping[str, str], home: Path) -> Path:
    """``$XDG_DATA_HOME/ortpacks``, by default ``~/.local/share/ortpacks``."""
    base = Path(env.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else home / ".local" / "share") / "ortpacks"


def top_of(package: IndexPackage) -> str:
    """The archive's one top-level folder: the package's name."""
    return stem(package.file)


def make_folders(prefix: Prefix) -> None:
    """Make the prefix's folders that are missing."""
    for folder in (prefix.versions, prefix.downloads, prefix.parts):
        make_folder(folder)


def make_folder(folder: Path) -> None:
    """Make ``folder``. Another install may make it at the same moment: then it is there."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(FOLDER_MODE)


def remove_leftovers(prefix: Prefix, packages: Iterable[IndexPackage]) -> None:
    """Remove what dead installs left, but not what an install of ``packages`` can go on with.

    Only with the lock held.
    """
    clear_parts(prefix)
    kept = {path for package in packages for path in _arriving(prefix, package)}
    for path in prefix.downloads.iterdir():
        if path not in kept and path.suffix != _LIBRARY:
            remove(path)


def clear_parts(prefix: Prefix) -> None:
    """Remove what dead commands were making: their process numbers may come again.

    Only with the lock held.
    """
    for path in prefix.parts.iterdir():
        remove(path)


def forget_downloads(prefix: Prefix) -> None:
    """Remove all that has arrived. Only with the lock held."""
    for path in prefix.downloads.iterdir():
        remove(path)


def _arriving(prefix: Prefix, package: IndexPackage) -> Iterator[Path]:
    for path in (prefix.download(package), *(prefix.piece(part) for part in package.parts)):
        yield path
        yield validator_file(path)


def write_json(prefix: Prefix, path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(prefix, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(prefix: Prefix, path: Path, text: str) -> None:
    """Write a file anybody may read, whole or not at all."""
    part = prefix.part(path.name)
    part.unlink(missing_ok=True)
    write_new([text.encode(errors="surrogateescape")], part, file_mode(path.name), sync_file)
    part.replace(path)


def read_info(folder: Path) -> Dict[str, object]:
    """``gpu-package-info.json`` of the package in ``folder``."""
    path = folder / INFO
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: cannot be read: {error}. Run install again.") from error
    if not isinstance(value, dict):
        raise IntegrityError(f"{path}: not an object. Run install again.")
    return value
