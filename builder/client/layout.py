"""The folder packages are installed in.

``versions/<package>-<sha12>/`` holds one whole package each, ``current`` links to the one in use. All else of
ours lies in ``.ortpacks/``: the lock, what has arrived, and what is being made. The rest of
the folder may be somebody else's, so nothing outside these three names is ever looked at.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, Mapping, Optional

from builder.client.download import etag_file
from builder.core.index import IndexPackage, IndexPart
from builder.core.manifest import FOLDER_MODE, file_mode
from builder.core.naming import stem
from builder.errors import DiskError, IntegrityError, NothingToDoError

INFO = "gpu-package-info.json"
_STATE = ".ortpacks"
_LIBRARY = ".library"
_ELSEWHERE = "Move it away, or choose another folder with --prefix."


@dataclass(frozen=True)
class Prefix:
    """Paths below one prefix."""

    root: Path

    @property
    def current(self) -> Path:
        """The link to the package in use."""
        return self.root / "current"

    @property
    def lock(self) -> Path:
        """Held during an install; never removed, or two could hold it."""
        return self.root / _STATE / "lock"

    @property
    def versions(self) -> Path:
        """Where unpacked packages lie."""
        return self.root / "versions"

    @property
    def downloads(self) -> Path:
        """Where archives arrive, and the libraries taken out of wheels."""
        return self.root / _STATE / "downloads"

    @property
    def parts(self) -> Path:
        """Where things are made before they get their names."""
        return self.root / _STATE / "parts"

    def folder(self, package: IndexPackage) -> Path:
        """Where this very package lies unpacked: its bytes are part of the name."""
        return self.versions / f"{top_of(package)}-{package.sha256[:12]}"

    def download(self, package: IndexPackage) -> Path:
        """Where this very package's archive arrives, joined where it was cut."""
        return self.piece(IndexPart(package.file, package.size, package.sha256))

    def piece(self, part: IndexPart) -> Path:
        """Where one part of an archive arrives."""
        return self.downloads / f"{part.sha256[:12]}-{part.file}.part"

    def library(self, sha256: str) -> Path:
        """Where a library of a wheel waits, whole, until its package is complete."""
        return self.downloads / f"{sha256}{_LIBRARY}"

    def part(self, name: str) -> Path:
        """Where ``name`` is made."""
        return self.parts / f"{name}-{os.getpid()}"


def default_prefix(env: Mapping[str, str], home: Path) -> Path:
    """``$XDG_DATA_HOME/ortpacks``, by default ``~/.local/share/ortpacks``."""
    base = Path(env.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else home / ".local" / "share") / "ortpacks"


def top_of(package: IndexPackage) -> str:
    """The archive's one top-level folder: the package's name."""
    return stem(package.file)


def make_folders(prefix: Prefix) -> None:
    """Make what is missing. ``DiskError`` when ``current`` is there already and not ours to replace."""
    link, versions = prefix.current, prefix.versions
    if (link.is_symlink() or link.exists()) and not _leads_into(link, versions):
        raise DiskError(f"{link} is in the way: it is no link to a package of ours. {_ELSEWHERE}")
    for folder in (versions, prefix.downloads, prefix.parts):
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
    kept = {path for package in packages for path in _arriving(prefix, package)}
    for path in (*prefix.parts.iterdir(), *prefix.downloads.iterdir()):
        if path not in kept and path.suffix != _LIBRARY:
            _remove(path)


def forget_downloads(prefix: Prefix) -> None:
    """Remove all that has arrived. Only with the lock held."""
    for path in prefix.downloads.iterdir():
        _remove(path)


def _arriving(prefix: Prefix, package: IndexPackage) -> Iterator[Path]:
    for path in (prefix.download(package), *(prefix.piece(part) for part in package.parts)):
        yield path
        yield etag_file(path)


def switch(prefix: Prefix, folder: Path) -> None:
    """Point ``current`` at ``folder`` in one step: at any moment it is the old or the new one."""
    link = prefix.part("current")
    link.symlink_to(os.path.relpath(folder, prefix.root), target_is_directory=True)
    link.replace(prefix.current)
    sync_folder(prefix.root)


def sync_folder(path: Path) -> None:
    """Make the names in a folder outlive a power cut, where the system offers that."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_info(prefix: Prefix, folder: Path, info: Mapping[str, object]) -> None:
    """Write ``gpu-package-info.json`` of the package in ``folder``, whole or not at all."""
    part = prefix.part(INFO)
    with part.open("w", encoding="utf-8") as file:
        file.write(json.dumps(info, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        part.chmod(file_mode(INFO))
        os.fsync(file.fileno())
    part.replace(folder / INFO)


def read_info(prefix: Prefix) -> Dict[str, object]:
    """``gpu-package-info.json`` of the package in use; ``NothingToDoError`` when none is installed."""
    path = installed(prefix) / INFO
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path}: cannot be read: {error}. Run install again.") from error
    if not isinstance(value, dict):
        raise IntegrityError(f"{path}: not an object. Run install again.")
    return value


def installed(prefix: Prefix) -> Path:
    """The folder ``current`` points to; ``NothingToDoError`` when none is installed."""
    if not prefix.current.is_dir():
        raise NothingToDoError(f"No package is installed under {prefix.root}. Run install first.")
    return prefix.current.resolve()


def in_use(prefix: Prefix) -> Optional[str]:
    """Name of the installed folder, for messages."""
    return prefix.current.resolve().name if prefix.current.is_dir() else None


def _leads_into(link: Path, folder: Path) -> bool:
    try:
        return link.is_symlink() and link.resolve().parent == folder.resolve()
    except (OSError, RuntimeError):  # a loop
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
