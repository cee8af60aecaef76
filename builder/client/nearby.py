"""NVIDIA's libraries that are here already: in Python environments, in packages installed before."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Tuple

from builder.client.digest import sha256_of
from builder.client.extract import inside
from builder.client.layout import Prefix
from builder.core.manifest import FileEntry
from builder.errors import ConfigError

NVIDIA = "nvidia"
"""The folder that NVIDIA's wheels unpack to, in ``site-packages``."""
_ENVIRONMENTS = ("lib*/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")


@dataclass(frozen=True)
class Found:
    """A file with the right bytes."""

    path: Path
    ours: bool
    """Whether only we write to it: then it may be linked to, else it could change under us."""


@dataclass(frozen=True)
class Nearby:
    """Where to look, and the hashes of what was looked at."""

    prefix: Prefix
    environments: Tuple[Path, ...]
    """``site-packages`` folders."""
    _digests: Dict[Tuple[str, int, int], str] = field(default_factory=dict, compare=False, repr=False)

    def promising(self) -> bool:
        """Whether there is anything at all to look at; costs nothing."""
        versions = self.prefix.versions
        return any((folder / NVIDIA).is_dir() for folder in self.environments) or (
            versions.is_dir() and any(versions.iterdir())
        )

    def find(self, entry: FileEntry) -> Optional[Found]:
        """A file with exactly the entry's bytes, wherever it comes from; ours before somebody else's."""
        for found in self._candidates(entry):
            if self._matches(found, entry):
                return found
        return None

    def _candidates(self, entry: FileEntry) -> Iterator[Found]:
        yield Found(self.prefix.library(entry.sha256), ours=True)
        place = inside(f"package/{entry.path}", "package")
        versions = sorted(self.prefix.versions.iterdir()) if self.prefix.versions.is_dir() else []
        yield from (Found(folder.joinpath(*place), ours=True) for folder in versions)
        if entry.member is not None:
            member = inside(f"wheel/{entry.member}", "wheel")
            yield from (Found(folder.joinpath(*member), ours=False) for folder in self.environments)

    def _matches(self, found: Found, entry: FileEntry) -> bool:
        """By size, then sha256. What cannot be read does not match."""
        path = found.path
        try:
            if not path.is_file() or (found.ours and path.is_symlink()):
                return False
            stat = path.stat()
            return stat.st_size == entry.size and self._digest(path, stat) == entry.sha256
        except OSError:
            return False

    def _digest(self, path: Path, stat: os.stat_result) -> str:
        """What was hashed once is not read again unless it has changed since."""
        key = (str(path), stat.st_size, stat.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = sha256_of(path)
        return self._digests[key]


def site_packages(folders: Iterable[Path]) -> Tuple[Path, ...]:
    """The ``site-packages`` with NVIDIA's libraries that ``folders``, environments or their inside, hold.

    Raises ``ConfigError`` for a folder that is not there.
    """
    found: Dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder. --look-in and ORTPACKS_LOOK_IN name environments.")
        inner = (path for pattern in _ENVIRONMENTS for path in sorted(folder.glob(pattern)))
        found.update(dict.fromkeys(path for path in (folder, *inner) if (path / NVIDIA).is_dir()))
    return tuple(found)
