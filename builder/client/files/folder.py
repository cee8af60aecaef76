"""The folder packages are installed in.

``versions/<package>-<sha12>/`` holds one whole package each, ``current`` (or ``current.txt``) tells the one
in use, ``gpu-info.json`` what was found out about the machine. All else of ours lies in ``.ortpacks/``: the
lock, the history, what has arrived, and what is being made. The rest of the folder may be somebody else's, so
nothing outside these names is ever looked at.

One change at a time per prefix: a lock that the system drops when its holder dies.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Dict, Iterable, Iterator, Mapping

from builder.errors import IntegrityError
from builder.formats.index import IndexPackage, IndexPart
from builder.formats.manifest import FOLDER_MODE, file_mode
from builder.formats.package_names import stem

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
        """What is for the client alone."""
        return self.root / _STATE

    @property
    def history(self) -> Path:
        """Names of the packages that were in use, oldest first."""
        return self.state / "history"

    @property
    def lock(self) -> Path:
        """Held by whoever changes anything."""
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
    """Make what is missing."""
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
        yield etag_file(path)


def sync_folder(path: Path) -> None:
    """Make the names in a folder outlive a power cut, where the system offers that."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(prefix: Prefix, path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(prefix, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(prefix: Prefix, path: Path, text: str) -> None:
    """Write a file anybody may read, whole or not at all."""
    part = prefix.part(path.name)
    with part.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(text)
        file.flush()
        part.chmod(file_mode(path.name))
        os.fsync(file.fileno())
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


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_POLL_SECONDS = 0.2

if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def hold(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock ``path``, waiting for whoever has it; ``on_wait`` is called once before waiting.

    The file may be removed by who holds it: who waited for it then takes the lock of the file that is there.
    """
    waited = False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            while not _taken(file):
                if not waited:
                    on_wait()
                waited = True
                time.sleep(_POLL_SECONDS)
            if _still_there(file, path):
                yield
                return


def _taken(file: IO[bytes]) -> bool:
    try:
        _try(file)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _still_there(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def etag_file(part: Path) -> Path:
    """Where the server's name for the bytes in ``part`` is kept, for ``If-Range``."""
    return part.with_name(part.name + ".etag")
