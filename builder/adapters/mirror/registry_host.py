"""Releases in a repository of an OCI registry; implements ``release.assets.ReleaseHost``.

A release is one artifact under the release's tag, with its files as layers; the tag ``latest`` names the
newest release. A draft is a set of blobs that no manifest names: clients do not see the blobs, and the next
run finds the uploaded ones by their digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from builder.adapters.docker.registry import BYTES_TYPE, PassingError, Registry, artifact
from builder.adapters.retries import FileBody, Retrier, TransientFailure
from builder.errors import IntegrityError, ReleaseConflictError, TransferError
from builder.files.digest import LocalFile, file_digest
from builder.formats.oci import RELEASE_TYPE, SCHEME, TITLE
from builder.ports import Reporter
from builder.release.assets import UPLOADED, Asset, Release, require_size
from builder.release.mirror import LATEST

_VERSION = "org.opencontainers.image.version"

_TYPES = {
    ".json": "application/json",
    ".zst": "application/zstd",
    ".gz": "application/gzip",
    ".html": "text/html",
}
"""IANA's media types by the end of a file's name; a file with another name has ``BYTES_TYPE``."""

_MISSING = "missing"
"""The state of a file whose blob the registry does not have, or has in another size."""

V = TypeVar("V")


class RegistryHost:
    """The releases of one repository, ``HOST/NAME``."""

    def __init__(self, registry: Registry, repository: str, reporter: Reporter, retrier: Retrier) -> None:
        self._registry = registry
        self._repository = repository
        self._reporter = reporter
        self._retrier = retrier
        self._draft: dict[str, Asset] = {}
        """The files of the release that is being made, by their names."""

    def require_access(self) -> None:
        """See ``release.assets.ReleaseHost.require_access``. An upload is begun and cancelled as a test."""
        place = self._retry("begin an upload", self._registry.begin_upload)
        self._retry("give up an upload", lambda: self._registry.cancel_upload(place))

    def published(self, tag: str) -> Release | None:
        """See ``release.assets.ReleaseHost.published``. Raises ``ReleaseConflictError`` for an image."""
        manifest = self._release_under(tag)
        return self._release(tag, manifest.files, draft=False) if manifest else None

    def latest(self) -> Release | None:
        """See ``release.assets.ReleaseHost.latest``. It is the release that the tag ``latest`` names.

        Raises ``ReleaseConflictError`` if that is an image, which ``publish`` would take the tag from.
        """
        manifest = self._release_under(LATEST)
        return self._release(manifest.tag, manifest.files, draft=False) if manifest else None

    def drafts(self, tag: str) -> list[Release]:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.drafts``. Always empty: no API lists blobs without a manifest."""
        return []

    def create_draft(self, tag: str, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.create_draft``. Notes and commit are not kept."""
        self._draft = {}
        return self._release(tag, (), draft=True)

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """See ``release.assets.ReleaseHost.assets``. One request a file finds whether its blob is there."""
        files = self._draft.values() if release.draft else release.assets
        return tuple(self._looked_at(asset) for asset in files)

    def download(self, asset: Asset, limit: int) -> bytes:
        """See ``release.assets.ReleaseHost.download``."""
        require_size(asset, limit)
        blob = partial(self._registry.blob, str(asset.digest), limit)
        content = self._retry(f"download {asset.name}", blob)
        if content is None:
            raise TransferError(
                f"{self._repository} has lost {asset.name} ({asset.digest})",
                advice="Mirror its release again with --replace.",
            )
        return content

    def upload(self, release: Release, file: LocalFile) -> Asset:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.upload``. A blob that the registry has is not sent again."""
        asset = Asset(file.name, file.size, file.digest, UPLOADED, len(self._draft))
        if self._looked_at(asset).state == UPLOADED:
            self._reporter.say(f"{file.name} is in the registry already")
        else:
            upload = _BlobUpload(self._registry, file, self._reporter)
            self._retry(f"upload {file.name}", upload.attempt)
        self._draft[file.name] = asset
        return asset

    def delete(self, asset: Asset) -> None:
        """See ``release.assets.ReleaseHost.delete``. The blob stays; the next manifest does not name it."""
        self._draft.pop(asset.name, None)

    def publish(self, release: Release, title: str, body: str, commit: str | None = None) -> Release:  # noqa: ARG002
        """See ``release.assets.ReleaseHost.publish``. ``latest`` is written before the release's own tag.

        ``latest`` stays as it is when a release is replaced that is not the newest.
        """
        files = tuple(self._draft[name] for name in sorted(self._draft))
        config = self._retry("write the configuration", self._registry.put_empty)
        manifest = _manifest(release.tag, title, files, config)
        newest, new = self.latest(), self.published(release.tag) is None
        moves = new or newest is None or newest.tag == release.tag
        for tag in (LATEST, release.tag) if moves else (release.tag,):
            self._put(tag, manifest)
        return self._release(release.tag, files, draft=False)

    def withdraw(self, release: Release) -> Release:
        """See ``release.assets.ReleaseHost.withdraw``. The public release stays until it is replaced."""
        whole = (asset for asset in self.assets(release) if asset.state == UPLOADED)
        self._draft = {asset.name: asset for asset in whole}
        return self._release(release.tag, tuple(self._draft.values()), draft=True)

    def _put(self, tag: str, manifest: bytes) -> None:
        self._retry(f"write {tag}", lambda: self._registry.put_manifest(tag, manifest))
        if self._manifest(tag) != manifest:
            raise IntegrityError(
                f"{self._address(tag)} is not what was written",
                advice="Is someone else publishing? Run it again.",
            )

    def _release_under(self, tag: str) -> _Manifest | None:
        """Return the release that has the tag; ``None`` if nothing has it."""
        content = self._manifest(tag)
        if content is None:
            return None
        manifest = _release_in(content)
        if manifest is None:
            raise ReleaseConflictError(
                f"{self._address(tag)} is no release",
                cause="an image has that tag",
                advice="Pass another name in --to." if tag == LATEST else "Pass another --tag or name.",
            )
        return manifest

    def _manifest(self, tag: str) -> bytes | None:
        return self._retry(f"read {tag}", lambda: self._registry.manifest(tag))

    def _looked_at(self, asset: Asset) -> Asset:
        """Return the asset with its state now: whole if the registry has a blob of its size, else missing."""
        size = self._retry(f"look for {asset.name}", lambda: self._registry.blob_size(str(asset.digest)))
        state = UPLOADED if size == asset.size else _MISSING
        return Asset(asset.name, asset.size, asset.digest, state, asset.id)

    def _retry(self, what: str, attempt: Callable[[], V]) -> V:
        return self._retrier.retry(what, lambda: _attempted(attempt))

    def _release(self, tag: str, files: tuple[Asset, ...], *, draft: bool) -> Release:
        return Release(tag, draft, files, html_url=self._address(tag))

    def _address(self, tag: str) -> str:
        return f"{SCHEME}{self._repository}:{tag}"


class _BlobUpload:
    """The upload of one file, which continues after a failed attempt of the same run."""

    def __init__(self, registry: Registry, file: LocalFile, reporter: Reporter) -> None:
        self._registry = registry
        self._file = file
        self._reporter = reporter
        self._place = ""

    def attempt(self) -> None:
        """Upload the file, or the bytes that are missing after an earlier attempt.

        Raises what ``Registry`` raises, ``TransientFailure`` when the upload has to start over, and
        ``IntegrityError`` when the file has changed.
        """
        file = self._file
        if self._place and self._registry.blob_size(file.digest) == file.size:
            return  # only the answer was lost
        start = self._begun()
        with self._reporter.progress(file.name, file.size - start) as advance:
            if start < file.size:
                self._place = self._registry.send(self._place, FileBody(file, advance, start))
        if self._registry.finish_upload(self._place, file.digest):
            return
        self._place = ""
        if file_digest(file.path).sha256 != file.sha256:
            raise IntegrityError(
                f"{file.path}: the file changed since it was checked", advice="Run it again."
            )
        raise TransientFailure(f"wanted {file.digest}; the registry got other bytes", error=IntegrityError)

    def _begun(self) -> int:
        """Begin or continue the upload, and return how many bytes the registry has."""
        if self._place:
            try:
                self._place, start = self._registry.resume_upload(self._place)
            except PassingError:
                raise
            except TransferError:  # the registry has forgotten the upload
                self._place = ""
            else:
                return min(start, self._file.size)
        self._place = self._registry.begin_upload()
        return 0


@dataclass(frozen=True)
class _Manifest:
    """The tag and the files of a release, as its manifest names them."""

    tag: str
    files: tuple[Asset, ...]


def _attempted(attempt: Callable[[], V]) -> V:
    try:
        return attempt()
    except PassingError as error:
        raise TransientFailure(error.headline, wait=error.wait) from None


def _manifest(tag: str, title: str, files: tuple[Asset, ...], config: Mapping[str, object]) -> bytes:
    """Return the manifest of a release. The same arguments give the same bytes."""
    layers = [
        {
            "mediaType": next((kind for end, kind in _TYPES.items() if file.name.endswith(end)), BYTES_TYPE),
            "digest": file.digest,
            "size": file.size,
            "annotations": {TITLE: file.name},
        }
        for file in files
    ]
    return artifact(RELEASE_TYPE, config, layers, {_VERSION: tag, TITLE: title})


def _release_in(content: bytes) -> _Manifest | None:
    """Return the release that a manifest describes; ``None`` for an image, an index, or anything else."""
    try:
        document = json.loads(content)
        if document["artifactType"] != RELEASE_TYPE:
            return None
        files = [
            Asset(str(one["annotations"][TITLE]), int(one["size"]), str(one["digest"]), UPLOADED, number)
            for number, one in enumerate(document["layers"])
        ]
        return _Manifest(str(document["annotations"][_VERSION]), tuple(files))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
