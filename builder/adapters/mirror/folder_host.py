"""Releases in a mirror's folder; implements ``release.assets.ReleaseHost``.

``FolderHost.assets`` computes each digest from the file's bytes, so that a flipped bit is found. Only
drafts are written.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from builder.adapters.mirror.folder import MirrorFolder
from builder.errors import IntegrityError, TransferError
from builder.files.atomic_write import part_file
from builder.files.digest import Digest, LocalFile, chunks_of, file_digest
from builder.files.disk import disk_errors, require_space
from builder.ports import Reporter
from builder.release.assets import UPLOADED, Asset, Release

_UNREADABLE = "unreadable"

_NO_FILE = "no file"


class FolderHost:
    """The releases of one mirror. A writer must hold ``MirrorFolder.locked``."""

    def __init__(self, mirror: MirrorFolder, reporter: Reporter) -> None:
        self._mirror = mirror
        self._reporter = reporter
        self._asset_paths: list[Path] = []
        """The path of every asset that was returned, at the index that is the asset's id."""

    def require_access(self) -> None:
        """See ``release.assets.ReleaseHost.require_access`` and ``MirrorFolder.require_ours``."""
        self._mirror.require_ours()

    def require_disk_space(self, tag: str, files: tuple[Path, ...]) -> None:
        """Raise ``DiskError`` unless there is space for the ``files`` that the release and its draft lack."""
        there = {(path.name, _size(path)) for folder in self._folders(tag) for path in _inside(folder)}
        sizes = {path.name: _size(path) for path in files}
        require_space(
            self._mirror.release(tag), sum(size for name, size in sizes.items() if (name, size) not in there)
        )

    def published(self, tag: str) -> Release | None:
        """See ``release.assets.ReleaseHost.published``."""
        folder = self._mirror.release(tag)
        return self._release(tag, folder, draft=False) if folder.exists() else None

    def latest(self) -> Release | None:
        """See ``release.assets.ReleaseHost.latest``. It is the first release in ``releases.json``."""
        listed = self._mirror.listing().releases
        return self.published(listed[0].tag) if listed else None

    def drafts(self, tag: str) -> list[Release]:
        """See ``release.assets.ReleaseHost.drafts``. There is one at most."""
        folder = self._mirror.draft(tag)
        return [self._release(tag, folder, draft=True)] if folder.is_dir() else []

    def create_draft(self, tag: str, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.create_draft``. Title, notes and commit are not kept."""
        folder = self._mirror.draft(tag)
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        return self._release(tag, folder, draft=True)

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """See ``release.assets.ReleaseHost.assets``. Every byte is read."""
        return tuple(self._asset(path, read=True) for path in _inside(self._folder(release)))

    def download(self, asset: Asset, limit: int) -> bytes:
        """See ``release.assets.ReleaseHost.download``."""
        path = self._asset_paths[asset.id]
        try:
            with path.open("rb") as file:
                content = file.read(limit + 1)
        except OSError as error:
            advice = "Check its owner and mode."
            raise TransferError(
                f"{path} cannot be read", cause=error.strerror or "", advice=advice
            ) from error
        if len(content) > limit:
            raise TransferError(f"{path} has more than {limit:,} bytes, so it is not what was asked for.")
        return content

    def upload(self, release: Release, file: LocalFile) -> Asset:
        """See ``release.assets.ReleaseHost.upload``. The copy is read again before it gets its name."""
        dest = self._mirror.draft(release.tag) / file.name
        with (
            part_file(dest, needed=file.size) as part,
            self._reporter.progress(file.name, file.size) as advance,
        ):
            for chunk in chunks_of(file.path):
                part.write(chunk)
                advance(len(chunk))
            part.flush()
            _require_same(file, file_digest(Path(part.name)))
        return self._asset(dest, read=False)

    def delete(self, asset: Asset) -> None:
        """See ``release.assets.ReleaseHost.delete``. A public asset is removed from the tag's draft too."""
        listed = self._asset_paths[asset.id]
        path = self._mirror.draft(listed.parent.name) / listed.name
        with disk_errors(path), suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def publish(self, release: Release, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.publish``. Also updates ``releases.json`` and ``latest``."""
        self._mirror.make_public(release.tag)
        self._mirror.settle()
        return self._release(release.tag, self._mirror.release(release.tag), draft=False)

    def withdraw(self, release: Release) -> Release:
        """See ``release.assets.ReleaseHost.withdraw``. The public release stays until it is replaced.

        The draft gets hard links to the release's files that it lacks, where the file system has such links.
        What an interrupted replacement has copied stays in it.
        """
        self._mirror.require_listed(release.tag)
        draft = self._mirror.draft(release.tag)
        with disk_errors(draft):
            draft.mkdir(exist_ok=True)
            for path in _inside(self._folder(release)):
                with suppress(OSError):
                    (draft / path.name).hardlink_to(path)
        return self._release(release.tag, draft, draft=True)

    def _folders(self, tag: str) -> tuple[Path, Path]:
        return self._mirror.release(tag), self._mirror.draft(tag)

    def _folder(self, release: Release) -> Path:
        public, draft = self._folders(release.tag)
        return draft if release.draft else public

    def _release(self, tag: str, folder: Path, *, draft: bool) -> Release:
        assets = tuple(self._asset(path, read=False) for path in _inside(folder))
        return Release(tag, draft, assets, html_url=str(folder))

    def _asset(self, path: Path, *, read: bool) -> Asset:
        self._asset_paths.append(path)
        state, digest = _look(path, read=read)
        return Asset(
            name=path.name, size=_size(path), digest=digest, state=state, id=len(self._asset_paths) - 1
        )


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    return path.lstat().st_size


def _look(path: Path, *, read: bool) -> tuple[str, str | None]:
    """Return the state of a file and, with ``read``, its digest ``sha256:<hex>``; ``None`` without."""
    if path.is_symlink() or not path.is_file():
        return _NO_FILE, None
    try:
        return UPLOADED, f"sha256:{file_digest(path).sha256}" if read else None
    except IntegrityError:
        return _UNREADABLE, None


def _require_same(file: LocalFile, got: Digest) -> None:
    if (got.size, got.sha256) != (file.size, file.sha256):
        raise IntegrityError(
            f"{file.name}: wanted {file.size:,} bytes with sha256 {file.sha256}, on the mirror came "
            f"{got.size:,} with {got.sha256}",
            advice="The file changed, or the disk is failing. Run it again.",
        )
