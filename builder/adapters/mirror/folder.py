"""A mirror's folder: its layout, its lock, and its repair after a killed run.

``TAG/`` holds a release, ``latest`` links to the newest release, ``releases.json`` lists all releases, and
``simple/`` has the pages of their wheels. ``.drafts/`` holds the lock, releases that are not public yet, and
files that are being written or removed. All other files in the folder stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from builder.errors import ConfigError, DiskError, ReleaseConflictError
from builder.files.atomic_write import write_file
from builder.files.disk import disk_errors, resolved, sync_folder
from builder.files.file_lock import exclusive
from builder.formats.index import INDEX_LIMIT
from builder.formats.json_values import json_text
from builder.formats.package_names import INDEX
from builder.package.provenance import utc
from builder.release.mirror import (
    EMPTY,
    LATEST,
    LISTING,
    LISTING_LIMIT,
    Mirror,
    MirrorRelease,
    entry,
    loads,
    merged,
    mirror_tag,
    tag_in,
)

_LOCK = ".lock"

_ASIDE = "~"
"""The suffix of a replaced release's folder until the folder is removed. No tag ends with ``~``."""


class MirrorFolder:
    """The mirror below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = resolved(root)
        self.drafts = self.root / ".drafts"

    def release(self, tag: str) -> Path:
        """Return the folder of a public release. Raises ``ConfigError`` or ``ReleaseConflictError``."""
        path = self.root / mirror_tag(tag)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _not_ours(path, "the folder of a release")
        return path

    def draft(self, tag: str) -> Path:
        """Return the folder of a draft, on the same file system, so that one rename publishes it."""
        return self.drafts / mirror_tag(tag)

    def require_ours(self) -> None:
        """Check that every name is free or a mirror's and that the folder is writable; change nothing.

        Raises ``ReleaseConflictError`` or ``DiskError``.
        """
        _require_writable(self.root)
        if self.drafts.is_symlink() or (self.drafts.exists() and not self.drafts.is_dir()):
            raise _not_ours(self.drafts, "the folder of drafts")
        link = self.root / LATEST
        if os.path.lexists(link) and not (link.is_symlink() and link.readlink().name == str(link.readlink())):
            raise _not_ours(link, "the link to the newest release")
        self._read_listing()

    def require_listed(self, tag: str) -> None:
        """Raise ``ReleaseConflictError`` unless the folder ``tag`` is a release of this mirror."""
        if tag not in {release.tag for release in self.listing().releases}:
            raise _not_ours(self.root / tag, "a release")

    @contextmanager
    def locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the mirror's lock during the block, after repairing what a killed run left.

        ``waiting`` is called once when another run holds the lock. Raises ``DiskError``.
        """
        with disk_errors(self.drafts):
            self.root.mkdir(parents=True, exist_ok=True)
            # The mode keeps drafts from other users, such as a web server's.
            self.drafts.mkdir(mode=0o700, exist_ok=True)
        with exclusive(self.drafts / _LOCK, waiting):
            with disk_errors(self.drafts):
                self._recover()
            yield

    def make_public(self, tag: str) -> None:
        """Publish a draft by one rename, and remove the release that it replaces. Raises ``DiskError``."""
        draft, public = self.draft(tag), self.release(tag)
        aside = self.drafts / f"{tag}{_ASIDE}"
        with disk_errors(public):
            with suppress(FileNotFoundError):
                os.utime(draft / INDEX)
            sync_folder(draft)
            if public.exists():
                public.rename(aside)
            draft.rename(public)
            sync_folder(self.root)
            if aside.exists():
                shutil.rmtree(aside)

    def finish(self, tag: str) -> None:
        """Remove the rest of a draft once ``tag`` is public, and call ``settle``. Raises ``DiskError``."""
        with disk_errors(self.draft(tag)):
            if self.draft(tag).exists():
                shutil.rmtree(self.draft(tag))
        self.settle()

    def settle(self) -> None:
        """Update ``releases.json`` and ``latest`` to the releases that exist. Raises ``DiskError``."""
        listing = self.listing()
        with disk_errors(self.root / LISTING):
            if listing != self._read_listing():
                self._write(self.root / LISTING, json_text(listing))
        with disk_errors(self.root / LATEST):
            self._point_at(listing.releases[0].tag if listing.releases else None)

    def write_pages(self, pages: Mapping[str, str | None]) -> None:
        """Write pages by their paths below the mirror; ``None`` removes a page. Raises ``DiskError``."""
        for name, text in pages.items():
            path = self.root / name
            with disk_errors(path):
                if text is None:
                    path.unlink(missing_ok=True)
                    with suppress(OSError):
                        path.parent.rmdir()
                elif not path.is_file() or path.read_bytes() != text.encode():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._write(path, text)

    def listing(self) -> Mirror:
        """Return the list that ``releases.json`` should have: its releases that exist, and new releases.

        Raises ``ReleaseConflictError`` if the file is not a mirror's.
        """
        inside = self.root.iterdir() if self.root.is_dir() else ()
        folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
        found = sorted(
            (item for path in folders for item in _release_in_folder(path)), key=lambda item: item[0]
        )
        return merged(
            self._read_listing(), [item for _, item in reversed(found)], {path.name for path in folders}
        )

    def _read_listing(self) -> Mirror:
        path = self.root / LISTING
        if not os.path.lexists(path):
            return EMPTY
        if path.is_symlink() or not path.is_file():
            raise _not_ours(path, "the list of releases")
        try:
            with path.open("rb") as file:
                return loads(file.read(LISTING_LIMIT), LISTING)
        except ConfigError as error:
            raise ReleaseConflictError(
                f"{path} is damaged, or not a mirror's",
                cause=str(error),
                advice="Move it away: the next run writes it anew.",
            ) from error
        except OSError as error:
            cause = error.strerror or str(error)
            raise DiskError(
                f"{path} cannot be read", cause=cause, advice="Check its owner and mode."
            ) from error

    def _write(self, path: Path, text: str) -> None:
        """Write a file in ``.drafts`` and move it, so that a killed run leaves partial files only there."""
        made = self.drafts / path.name
        write_file(made, text.encode())
        made.replace(path)
        sync_folder(path.parent)

    def _point_at(self, tag: str | None) -> None:
        link, made = self.root / LATEST, self.drafts / LATEST
        if tag is None:
            link.unlink(missing_ok=True)
        elif not link.is_symlink() or str(link.readlink()) != tag:
            made.symlink_to(tag, target_is_directory=True)
            made.replace(link)
        sync_folder(self.root)

    def _recover(self) -> None:
        """Restore a release that a killed run left between two renames, and remove that run's other files."""
        for path in self.drafts.iterdir():
            if path.is_symlink() or not path.is_dir():
                if path.name != _LOCK:
                    path.unlink()
            elif path.name.endswith(_ASIDE):
                self._bring_back(path)

    def _bring_back(self, aside: Path) -> None:
        public = self.root / aside.name.removesuffix(_ASIDE)
        if os.path.lexists(public):
            shutil.rmtree(aside)
        else:
            aside.rename(public)


def _release_in_folder(folder: Path) -> Iterator[tuple[int, MirrorRelease]]:
    """Yield the release in ``folder``, if its index names it, after the time in ns when it became public."""
    path = folder / INDEX
    with suppress(OSError):
        with path.open("rb") as file:
            content = file.read(INDEX_LIMIT)
            public = os.fstat(file.fileno()).st_mtime_ns
        if tag_in(content) == folder.name:
            yield public, entry(folder.name, utc(public // 10**9), hashlib.sha256(content).hexdigest())


def _require_writable(root: Path) -> None:
    there = next(path for path in (root, *root.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise DiskError(f"{there} is no folder, so there can be no mirror", advice="Pass another --to.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DiskError(
            f"{there} cannot be written", advice="Check its owner and mode, or pass another --to."
        )


def _not_ours(path: Path, what: str) -> ReleaseConflictError:
    return ReleaseConflictError(
        f"{path} is not {what} that a mirror has there",
        advice="Move it away, or pass another folder or tag.",
    )
