"""A mirror's folder: its layout, its list of releases, its lock, and its repair after a killed run.

``MirrorFolder`` implements ``publish.assets.ReleaseHost``. It computes each digest from the file's bytes, so
that a flipped bit is found. Only drafts are written.

``TAG/`` holds a release, ``latest`` links to the newest release, ``releases.json`` lists all releases, and
``simple/`` has the pages of their wheels. ``.drafts/`` holds the lock, releases that are not public yet, and
files that are being written or removed. All other files in the folder stay as they are. The fields of
``releases.json``: docs/schemas/mirror.schema.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from builder.console import Reporter
from builder.contents.provenance import utc
from builder.errors import (
    ConfigError,
    DiskError,
    IntegrityError,
    ReleaseConflictError,
    TransferError,
    ValidationError,
)
from builder.files.atomic_write import part_file, write_file
from builder.files.digest import LocalFile, chunks_of, file_digest
from builder.files.disk import disk_errors, require_space, resolved, sync_folder
from builder.files.file_lock import exclusive
from builder.formats.index import INDEX_LIMIT
from builder.formats.json_values import json_text, read_document
from builder.formats.package_names import INDEX
from builder.publish.assets import UPLOADED, Asset, Release, require_tag

FORMAT = 1

LISTING = "releases.json"

LATEST = "latest"
"""Name of the link to the newest release."""

SIMPLE = "simple"
"""Folder with the pages of the releases' wheels, for pip and uv."""

LISTING_LIMIT = 16 << 20
"""The largest file that is read, in bytes; about a hundred thousand releases."""


@dataclass(frozen=True)
class MirrorRelease:
    """One release of a mirror."""

    tag: str
    published: str
    """Time when the release first became public on this mirror: UTC, like ``2026-11-21T23:30:00Z``."""
    index: str
    """Path of its ``index.json``, relative to the folder of ``releases.json``."""
    sha256: str
    """Hex sha256 of that ``index.json``."""


@dataclass(frozen=True)
class Mirror:
    """The whole file; the fields are in its order."""

    format: int
    releases: tuple[MirrorRelease, ...]
    """Releases, the last published first."""


EMPTY = Mirror(FORMAT, ())


def mirror_tag(tag: str) -> str:
    """Return ``tag`` if a folder of a mirror can have that name. Raises ``ConfigError`` if not."""
    require_tag(tag)
    if "/" in tag:
        raise ConfigError(
            f"{tag!r} cannot be mirrored",
            cause="a mirror keeps each release in one folder that is named by its tag",
            advice="Pass a --tag without /.",
        )
    if tag in (LISTING, LATEST, SIMPLE):
        raise ConfigError(
            f"{tag!r} cannot be mirrored",
            cause="a mirror has something else there",
            advice="Pass another --tag.",
        )
    return tag


def entry(tag: str, published: str, sha256: str) -> MirrorRelease:
    """Return the list's entry of the release ``tag``."""
    return MirrorRelease(tag, published, f"{tag}/{INDEX}", sha256)


def merged(known: Mirror, releases: Sequence[MirrorRelease], folders: Collection[str]) -> Mirror:
    """Return the new list: releases that were never listed before, in the order given, then the known ones.

    A known release keeps its position and time while its folder exists, even if its index cannot be read. Its
    sha256 is the one in ``releases`` if it is there.
    """
    now = {release.tag: release for release in releases}
    old = {release.tag for release in known.releases}
    newer = [release for release in releases if release.tag not in old]
    kept = [
        replace(release, sha256=now.get(release.tag, release).sha256)
        for release in known.releases
        if release.tag in folders
    ]
    return Mirror(FORMAT, (*newer, *kept))


def loads(text: str | bytes, where: str) -> Mirror:
    """Return the list in a file's text; ``where`` names the file in errors.

    Raises ``ParseError`` for what is not JSON, ``SchemaError`` with every wrong key, and ``ValidationError``
    for an unknown format or impossible values.
    """
    mirror = read_document(Mirror, text, where, [FORMAT])
    problems = [f"{where}: {problem}" for problem in _impossible(mirror)]
    if problems:
        raise ValidationError(problems)
    return mirror


def _impossible(mirror: Mirror) -> Iterator[str]:
    seen: list[str] = []
    for number, release in enumerate(mirror.releases):
        where = f"releases[{number}]"
        # A writer joins the tag to the mirror's folder, so it must be a plain name.
        try:
            mirror_tag(release.tag)
        except ConfigError as error:
            yield f"{where}.tag: {error}"
        if release.tag in seen:
            yield f"{where}.tag: {release.tag} is listed twice"
        if release.index != f"{release.tag}/{INDEX}":
            yield f"{where}.index: {release.index!r} is not {release.tag}/{INDEX}"
        seen.append(release.tag)


_LOCK = ".lock"

_ASIDE = "~"
"""The suffix of a replaced release's folder until the folder is removed. No tag ends with ``~``."""

_UNREADABLE = "unreadable"

_NO_FILE = "no file"


class MirrorFolder:
    """The mirror below ``root``. A writer must hold ``locked``."""

    def __init__(self, root: Path, reporter: Reporter) -> None:
        self.root = resolved(root)
        self._drafts = self.root / ".drafts"
        self._reporter = reporter
        self._asset_paths: list[Path] = []
        """The path of every asset that was returned, at the index that is the asset's id."""

    def release(self, tag: str) -> Path:
        """Return the folder of a public release. Raises ``ConfigError`` or ``ReleaseConflictError``."""
        path = self.root / mirror_tag(tag)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _not_ours(path, "the folder of a release")
        return path

    def draft(self, tag: str) -> Path:
        """Return the folder of a draft, on the same file system, so that one rename publishes it."""
        return self._drafts / mirror_tag(tag)

    def require_access(self) -> None:
        """See ``ReleaseHost.require_access``: every name is free or a mirror's, and the folder is writable.

        Nothing is changed. Raises ``ReleaseConflictError`` or ``DiskError``.
        """
        _require_writable(self.root)
        if self._drafts.is_symlink() or (self._drafts.exists() and not self._drafts.is_dir()):
            raise _not_ours(self._drafts, "the folder of drafts")
        link = self.root / LATEST
        if os.path.lexists(link) and not (link.is_symlink() and link.readlink().name == str(link.readlink())):
            raise _not_ours(link, "the link to the newest release")
        self._read_listing()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the mirror's lock during the block, after repairing what a killed run left.

        Says so when another run holds the lock. Raises ``DiskError``.
        """
        waits = f"waiting: another run writes to {self.root}"
        with disk_errors(self._drafts):
            self.root.mkdir(parents=True, exist_ok=True)
            # The mode keeps drafts from other users, such as a web server's.
            self._drafts.mkdir(mode=0o700, exist_ok=True)
        with exclusive(self._drafts / _LOCK, lambda: self._reporter.say(waits)):
            with disk_errors(self._drafts):
                self._recover()
            yield

    def require_disk_space(self, tag: str, files: tuple[Path, ...]) -> None:
        """Raise ``DiskError`` unless there is space for the ``files`` that the release and its draft lack."""
        there = {
            (path.name, _size(path))
            for folder in (self.release(tag), self.draft(tag))
            for path in _inside(folder)
        }
        sizes = {path.name: _size(path) for path in files}
        require_space(
            self.release(tag), sum(size for name, size in sizes.items() if (name, size) not in there)
        )

    def published(self, tag: str) -> Release | None:
        """See ``publish.assets.ReleaseHost.published``."""
        folder = self.release(tag)
        return self._release(tag, folder, draft=False) if folder.exists() else None

    def latest(self) -> Release | None:
        """See ``publish.assets.ReleaseHost.latest``. It is the first release in ``releases.json``."""
        listed = self.listing().releases
        return self.published(listed[0].tag) if listed else None

    def drafts(self, tag: str) -> list[Release]:
        """See ``publish.assets.ReleaseHost.drafts``. There is one at most."""
        folder = self.draft(tag)
        return [self._release(tag, folder, draft=True)] if folder.is_dir() else []

    def create_draft(self, tag: str, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``publish.assets.ReleaseHost.create_draft``. Title, notes and commit are not kept."""
        folder = self.draft(tag)
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        return self._release(tag, folder, draft=True)

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """See ``publish.assets.ReleaseHost.assets``. Every byte is read."""
        return tuple(self._asset(path, read=True) for path in _inside(self._folder(release)))

    def download(self, asset: Asset, limit: int) -> bytes:
        """See ``publish.assets.ReleaseHost.download``."""
        path = self._asset_paths[asset.id]
        try:
            with path.open("rb") as file:
                content = file.read(limit + 1)
        except OSError as error:
            what, cause = f"{path} cannot be read", error.strerror or ""
            raise TransferError(what, cause=cause, advice="Check its owner and mode.") from error
        if len(content) > limit:
            raise TransferError(f"{path} has more than {limit:,} bytes, so it is not what was asked for.")
        return content

    def upload(self, release: Release, file: LocalFile) -> Asset:
        """See ``publish.assets.ReleaseHost.upload``. The copy is read again before it gets its name."""
        dest = self.draft(release.tag) / file.name
        with (
            part_file(dest, needed=file.size) as part,
            self._reporter.progress(file.name, file.size) as advance,
        ):
            for chunk in chunks_of(file.path):
                part.write(chunk)
                advance(len(chunk))
            part.flush()
            got = file_digest(Path(part.name))
            if (got.size, got.sha256) != (file.size, file.sha256):
                raise IntegrityError(
                    f"{file.name}: wanted {file.size:,} bytes with sha256 {file.sha256}, on the mirror came "
                    f"{got.size:,} with {got.sha256}",
                    advice="The file changed, or the disk is failing. Run it again.",
                )
        return self._asset(dest, read=False)

    def delete(self, asset: Asset) -> None:
        """See ``publish.assets.ReleaseHost.delete``. A public asset is removed from the tag's draft too."""
        listed = self._asset_paths[asset.id]
        path = self.draft(listed.parent.name) / listed.name
        with disk_errors(path), suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def publish(self, release: Release, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``publish.assets.ReleaseHost.publish``. One rename publishes the draft.

        The release that it replaces is removed, ``releases.json`` and ``latest`` are updated. Raises
        ``DiskError``.
        """
        draft, public = self.draft(release.tag), self.release(release.tag)
        aside = self._drafts / f"{release.tag}{_ASIDE}"
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
        self._settle()
        return self._release(release.tag, public, draft=False)

    def withdraw(self, release: Release) -> Release:
        """See ``publish.assets.ReleaseHost.withdraw``. The public release stays until it is replaced.

        The draft gets hard links to the release's files that it lacks, where the file system has such links.
        What an interrupted replacement has copied stays in it.
        """
        if release.tag not in {listed.tag for listed in self.listing().releases}:
            raise _not_ours(self.root / release.tag, "a release")
        draft = self.draft(release.tag)
        with disk_errors(draft):
            draft.mkdir(exist_ok=True)
            for path in _inside(self._folder(release)):
                with suppress(OSError):
                    (draft / path.name).hardlink_to(path)
        return self._release(release.tag, draft, draft=True)

    def _folder(self, release: Release) -> Path:
        return self.draft(release.tag) if release.draft else self.release(release.tag)

    def _release(self, tag: str, folder: Path, *, draft: bool) -> Release:
        assets = tuple(self._asset(path, read=False) for path in _inside(folder))
        return Release(tag, draft, assets, html_url=str(folder))

    def _asset(self, path: Path, *, read: bool) -> Asset:
        self._asset_paths.append(path)
        state, digest = UPLOADED, None
        if path.is_symlink() or not path.is_file():
            state = _NO_FILE
        elif read:
            try:
                digest = LocalFile.of(path).digest
            except IntegrityError:
                state = _UNREADABLE
        return Asset(path.name, _size(path), digest, state, id=len(self._asset_paths) - 1)

    def finish(self, tag: str) -> None:
        """Remove the rest of a draft once ``tag`` is public, and update the list. Raises ``DiskError``."""
        with disk_errors(self.draft(tag)):
            if self.draft(tag).exists():
                shutil.rmtree(self.draft(tag))
        self._settle()

    def _settle(self) -> None:
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
        dated = sorted(
            (item for path in folders for item in _release_in_folder(path)), key=lambda item: item[0]
        )
        return merged(
            self._read_listing(), [item for _, item in reversed(dated)], {path.name for path in folders}
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
        made = self._drafts / path.name
        write_file(made, text.encode())
        made.replace(path)
        sync_folder(path.parent)

    def _point_at(self, tag: str | None) -> None:
        link, made = self.root / LATEST, self._drafts / LATEST
        if tag is None:
            link.unlink(missing_ok=True)
        elif not link.is_symlink() or str(link.readlink()) != tag:
            made.symlink_to(tag, target_is_directory=True)
            made.replace(link)
        sync_folder(self.root)

    def _recover(self) -> None:
        """Restore a release that a killed run left between two renames, and remove that run's other files."""
        for path in self._drafts.iterdir():
            if path.is_symlink() or not path.is_dir():
                if path.name != _LOCK:
                    path.unlink()
            elif path.name.endswith(_ASIDE):
                public = self.root / path.name.removesuffix(_ASIDE)
                if os.path.lexists(public):
                    shutil.rmtree(path)
                else:
                    path.rename(public)


def _release_in_folder(folder: Path) -> Iterator[tuple[int, MirrorRelease]]:
    """Yield the release in ``folder``, if its index names it, after the time in ns when it became public.

    The index may be of any format. One that cannot be read names no release.
    """
    with suppress(OSError, ValueError, RecursionError):
        with (folder / INDEX).open("rb") as file:
            content = file.read(INDEX_LIMIT)
            public = os.fstat(file.fileno()).st_mtime_ns
        value = json.loads(content)
        if isinstance(value, dict) and "packages" in value and value.get("tag") == folder.name:
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


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    return path.lstat().st_size
