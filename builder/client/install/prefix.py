"""The prefix: the folder that packages are installed in.

``versions/<package>-<sha12>/`` holds one whole package each, ``current`` (or ``current.txt``) names the one
in use, ``gpu-info.json`` tells what was found out about the machine. All else of ours lies in ``.ortpacks/``:
the lock, the history, what has arrived, and what is being made. The rest of the folder may be another one's:
nothing outside these names is ever looked at.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, Mapping, Union

from builder.errors import IntegrityError
from builder.files.digest import write_new
from builder.files.disk import disk_errors, remove, set_mode, sync_file
from builder.files.file_lock import exclusive
from builder.formats.package_names import FOLDER_MODE, stem

if TYPE_CHECKING:  # as in builder.client.world
    from builder.formats.index import IndexPackage
    from builder.formats.parts import StoredFile

INFO = "gpu-package-info.json"

LIBRARY = ".library"


class Prefix:
    """Paths below one prefix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root / "current"
        """The link to the package in use."""
        self.pointer = root / "current.txt"
        """The file that names the package in use, where links cannot be made."""
        self.gpu_info = root / "gpu-info.json"
        """What was found out about the machine."""
        self.versions = root / "versions"
        """Where unpacked packages lie."""
        self.state = root / ".ortpacks"
        """The folder of the client's own files."""
        self.history = self.state / "history"
        """Names of the packages that were in use, oldest first."""
        self.signed = self.state / "signed.json"
        """The highest version of a signed release that was taken from each place."""
        self.lock = self.state / "lock"
        """The lock file; whoever changes anything holds it."""
        self.downloads = self.state / "downloads"
        """Where archives arrive, and the libraries taken out of wheels."""
        self.parts = self.state / "parts"
        """Where things are made before they get their names."""

    def folder(self, package: IndexPackage) -> Path:
        """Where this very package lies unpacked: its bytes are part of the name."""
        return self.versions / f"{stem(package.file)}-{package.sha256[:12]}"

    def piece(self, stored: Union[StoredFile, IndexPackage]) -> Path:
        """Where this very archive, or one of its parts, arrives."""
        return self.downloads / f"{stored.sha256[:12]}-{stored.file}.part"

    def library(self, sha256: str) -> Path:
        """Where a library of a wheel waits, whole, until its package is complete."""
        return self.downloads / f"{sha256}{LIBRARY}"

    def part(self, name: str) -> Path:
        """The path at which ``name`` is made; it holds the process number."""
        return self.parts / f"{name}-{os.getpid()}"


def default_prefix(env: Mapping[str, str], home: Path) -> Path:
    """``$XDG_DATA_HOME/ortpacks``, by default ``~/.local/share/ortpacks``."""
    base = Path(env.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else home / ".local" / "share") / "ortpacks"


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
        set_mode(folder, FOLDER_MODE)


@contextmanager
def changing(prefix: Prefix, say: Callable[[str], None], also: str = "") -> Iterator[None]:
    """Hold the lock of ``prefix``, whose folders are there then.

    What the disk refuses meanwhile is a ``DiskError``, with ``also`` behind its advice.
    """
    with disk_errors(prefix.root, also=also):
        make_folders(prefix)
        with exclusive(prefix.lock, lambda: say("Waiting for another command to finish.")):
            make_folders(prefix)  # the one that was waited for may have removed them
            yield


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


def write_json(prefix: Prefix, path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(prefix, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(prefix: Prefix, path: Path, text: str) -> None:
    """Write a file anybody may read, whole or not at all."""
    part = prefix.part(path.name)
    part.unlink(missing_ok=True)
    write_new([text.encode(errors="surrogateescape")], part, 0o644, sync_file)
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
