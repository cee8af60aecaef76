"""The prefix is the folder that packages are installed in.

``versions/<package>-<sha12>/`` holds one whole package each, ``current`` (or ``current.txt``) names the
package in use, ``gpu-info.json`` describes the machine. The client's other files are in ``.ortpacks/``: the
lock, the history, downloads and unfinished folders. Files of other programs may lie under the prefix: the
client never reads names other than these.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, Mapping

from builder.errors import DiskError, IntegrityError
from builder.files.digest import write_new
from builder.files.disk import disk_errors, made_again, remove, rename, resolved, set_mode, sync_file
from builder.files.file_lock import exclusive
from builder.formats.package_names import FOLDER_MODE, stem

if TYPE_CHECKING:  # as in builder.client.context
    from builder.formats.index import IndexPackage

INFO = "gpu-package-info.json"

LIBRARY = ".library"


class Prefix:
    """The paths below one prefix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root / "current"
        """The link to the package in use."""
        self.pointer = root / "current.txt"
        """The file that names the package in use, where links cannot be made."""
        self.gpu_info = root / "gpu-info.json"
        """The file that describes the machine and the recommended model."""
        self.versions = root / "versions"
        """The folder of unpacked packages."""
        self.state = root / ".ortpacks"
        """The folder of the client's own files."""
        self.history = self.state / "history"
        """Names of the packages that were in use, oldest first."""
        self.signed = self.state / "signed.json"
        """The file with the highest version of a signed release that was taken from each place."""
        self.lock = self.state / "lock"
        """The lock file that a command holds while it changes anything."""
        self.downloads = self.state / "downloads"
        """The folder of downloaded archives and of libraries unpacked from wheels."""
        self.parts = self.state / "parts"
        """The folder of unfinished files and folders, which are renamed once they are whole."""

    def folder(self, package: IndexPackage) -> Path:
        """Return the folder of this package. The name has a part of the archive's sha256."""
        return self.versions / f"{stem(package.file)}-{package.sha256[:12]}"

    def piece(self, package: IndexPackage) -> Path:
        """Return the path that this archive is downloaded to."""
        return self.downloads / f"{package.sha256[:12]}-{package.file}.part"

    def library(self, sha256: str) -> Path:
        """Return the path of a library unpacked from a wheel, kept until its package is complete."""
        return self.downloads / f"{sha256}{LIBRARY}"

    def part(self, name: str) -> Path:
        """Return the path of the unfinished ``name``, which contains the process id."""
        return self.parts / f"{name}-{os.getpid()}"


def default_prefix(env: Mapping[str, str], home: Path) -> Path:
    """Return ``$XDG_DATA_HOME/ortpacks``, by default ``~/.local/share/ortpacks``."""
    base = Path(env.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else home / ".local" / "share") / "ortpacks"


def state_folder(env: Mapping[str, str], home: Path) -> Path:
    """Return the folder in which this user's clients store what they know of projects, for every prefix.

    It is ``ortpacks`` in ``$XDG_STATE_HOME``, on Windows ``%LOCALAPPDATA%``, else ``~/.local/state``.
    """
    named = (Path(env.get(name, "")) for name in ("XDG_STATE_HOME", "LOCALAPPDATA"))
    return next((path for path in named if path.is_absolute()), home / ".local" / "state") / "ortpacks"


def make_folders(prefix: Prefix) -> None:
    """Make the missing folders of the prefix.

    Raises ``DiskError`` where one lies elsewhere, because a link leads there: its content will be removed.
    """
    root = resolved(prefix.root)
    for folder in (prefix.state, prefix.versions, prefix.downloads, prefix.parts):
        place = resolved(folder)
        if place != root / folder.relative_to(prefix.root) and folder.exists():
            raise DiskError(
                f"{folder} is a link to {place}, and the client would remove files there.",
                advice="Remove the link, or choose another folder with --prefix.",
            )
        if not folder.is_dir():
            made_again(partial(make_folder, folder))


def make_folder(folder: Path) -> None:
    """Make ``folder``, unless it exists; another install may make it at the same moment."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        set_mode(folder, FOLDER_MODE)


@contextmanager
def changing(prefix: Prefix, say: Callable[[str], None], also: str = "") -> Iterator[None]:
    """Hold the lock of ``prefix`` and make its folders.

    An ``OSError`` in the block becomes a ``DiskError``, whose advice ends with ``also``.
    """
    with disk_errors(prefix.root, also=also):
        make_folders(prefix)
        with exclusive(prefix.lock, lambda: say("Waiting for another command to finish.")):
            make_folders(prefix)  # the process that held the lock may have removed them
            yield


def empty(folder: Path) -> None:
    """Remove all that is in ``folder``: ``downloads``, or ``parts``, whose process ids may be used again.

    The lock must be held.
    """
    for path in folder.iterdir():
        remove(path)


def write_json(prefix: Prefix, path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(prefix, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(prefix: Prefix, path: Path, text: str) -> None:
    """Write a file with mode 644, whole or not at all."""
    part = prefix.part(path.name)
    part.unlink(missing_ok=True)
    write_new([text.encode(errors="surrogateescape")], part, 0o644, sync_file)
    rename(part, path)


def read_info(folder: Path) -> Dict[str, object]:
    """Return the content of ``gpu-package-info.json`` in ``folder``. Raises ``IntegrityError``."""
    path = folder / INFO
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: cannot be read: {error}. Run install again.") from error
    if not isinstance(value, dict):
        raise IntegrityError(f"{path}: not an object. Run install again.")
    return value
