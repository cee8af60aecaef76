"""Releases on GitHub or GitHub Enterprise; implements ``publish.assets.ReleaseHost`` and ``Repository``.

Sources: docs.github.com "REST API endpoints for releases", "for release assets", "for Git references", "for
Git tags" and "for repositories". Failed requests are repeated by ``publish.github.http``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

from builder.console import Reporter
from builder.errors import IntegrityError, TransferError
from builder.files.digest import LocalFile, RunningDigest, named_digest
from builder.publish.assets import UPLOADED, Asset, Release, matches, require_repository
from builder.publish.github.http import (
    FileBody,
    GitHubHttp,
    GitHubReply,
    codes_in,
    explain,
    lacks_scope,
    may_not_write,
)

_PAGE = 100

_OK, _CREATED, _NO_CONTENT = 200, 201, 204

_FORBIDDEN, _NOT_FOUND, _UNPROCESSABLE = 403, 404, 422

_SOON = 1.0
"""Seconds after which an asset that was there already is looked for."""

_COMMIT = re.compile("[0-9a-f]{40}")
"""The hash of a commit; ``target_commitish`` may be the name of a branch instead."""

_ENTERPRISE_SERVER = "X-GitHub-Enterprise-Version"
"""A header that only the answers of a GitHub Enterprise Server have."""

V = TypeVar("V", str, int, bool)


class GitHub:
    """The releases of one repository (``owner/name``)."""

    def __init__(self, *, repository: str, http: GitHubHttp, reporter: Reporter) -> None:
        """Raise ``ConfigError`` for a repository that is not ``owner/name``."""
        self._repository = require_repository(repository)
        self._root = f"/repos/{repository}/releases"
        self._http = http
        self._reporter = reporter
        self._older: set[int] = set()
        """The ids of releases that were withdrawn and were not the newest."""
        self._read: dict[int, str] = {}
        """The digests of assets that were read back, by id; GitHub never changes an asset's bytes."""

    def require_access(self) -> None:
        """See ``publish.assets.ReleaseHost.require_access``.

        GitHub reports the permissions of the token's user, and the scopes of a classic token. Only the first
        write shows the permissions of a fine-grained token, or of a token without a user (a workflow's).
        """
        reply = self._http.call("GET", f"/repos/{self._repository}", wanted=(_OK,))
        may_push = _permissions(reply).get("push") is not False
        if lacks_scope(reply.headers) or not (may_push or self._http.stands_for_no_user):
            raise may_not_write(self._repository)

    def commit_of(self, tag: str) -> str | None:
        """See ``publish.assets.Repository.commit_of``. An annotated tag names its commit in a tag object."""
        git = f"/repos/{self._repository}/git"
        path = f"{git}/ref/{quote(f'tags/{tag}', safe='')}"
        reply = self._http.call("GET", path, wanted=(_OK, _NOT_FOUND))
        if reply.status == _NOT_FOUND:
            return None
        target = _object(_object(reply.json).get("object"))
        while target.get("type") == "tag":
            reply = self._http.call("GET", f"{git}/tags/{_field(target, 'sha', str)}", wanted=(_OK,))
            target = _object(_object(reply.json).get("object"))
        return _field(target, "sha", str)

    def has_immutable_releases(self) -> bool | None:
        """See ``publish.assets.Repository.has_immutable_releases``.

        GitHub answers 404 when immutable releases are off, when the token's user may not ask, and when a
        server does not support them.
        """
        path = f"/repos/{self._repository}/immutable-releases"
        reply = self._http.call("GET", path, wanted=(_OK, _FORBIDDEN, _NOT_FOUND))
        if reply.status == _OK:
            return _field(_object(reply.json), "enabled", bool)
        server = reply.headers.get(_ENTERPRISE_SERVER)
        if reply.status == _NOT_FOUND and not server and self._is_administered():
            return False
        why = f"Enterprise Server {server} may have none" if server else "only administrators may ask"
        self._reporter.warn(
            f"{self._repository}: GitHub does not say whether releases are immutable ({reply.status}: {why})"
            ". Look whether 'Enable release immutability' is on."
        )
        return None

    def latest(self) -> Release | None:
        """See ``publish.assets.ReleaseHost.latest``."""
        reply = self._http.call("GET", f"{self._root}/latest", wanted=(_OK, _NOT_FOUND))
        return None if reply.status == _NOT_FOUND else _release(reply.json)

    def published(self, tag: str) -> Release | None:
        """See ``publish.assets.ReleaseHost.published``."""
        reply = self._http.call("GET", f"{self._root}/tags/{quote(tag, safe='')}", wanted=(_OK, _NOT_FOUND))
        if reply.status == _NOT_FOUND:
            return None
        release = _release(reply.json)
        return None if release.draft else release  # GitHub returns no draft here; compatible servers do

    def drafts(self, tag: str) -> list[Release]:
        """See ``publish.assets.ReleaseHost.drafts``. Only GitHub's list of all releases has drafts."""
        releases = [_release(item) for item in self._pages(self._root)]
        return sorted((item for item in releases if item.draft and item.tag == tag), key=lambda item: item.id)

    def create_draft(self, tag: str, title: str, body: str, commit: str | None = None) -> Release:
        """See ``publish.assets.ReleaseHost.create_draft``. A lost answer does not make a second draft."""
        content = {"tag_name": tag, "name": title, "body": body, "draft": True, **_target(commit)}
        return self._http.retry(
            f"create draft {tag}",
            lambda: self._create(content),
            find_done=lambda: next(iter(self.drafts(tag)), None),
        )

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """See ``publish.assets.ReleaseHost.assets``."""
        listed = self._pages(f"{self._root}/{release.id}/assets")
        return tuple(self._read_back(_asset(item)) for item in listed)

    def upload(self, release: Release, file: LocalFile) -> Asset:
        """See ``publish.assets.ReleaseHost.upload``.

        After a failure the list of assets is read first: the file may have arrived, or an incomplete asset of
        its name must be deleted.
        """
        return self._http.retry(
            f"upload {file.name}",
            lambda: self._send(release, file),
            find_done=lambda: self._find_uploaded(release, file),
        )

    def download(self, asset: Asset, limit: int) -> bytes:
        """See ``publish.assets.ReleaseHost.download``."""
        if asset.size > limit:
            raise TransferError(f"{asset.name} is {asset.size:,} bytes; at most {limit:,} are read of it.")
        return self._http.retry(f"download {asset.name}", lambda: self._fetch(asset, limit))

    def delete(self, asset: Asset) -> None:
        """See ``publish.assets.ReleaseHost.delete``."""
        self._http.call("DELETE", f"{self._root}/assets/{asset.id}", wanted=(_NO_CONTENT, _NOT_FOUND))

    def publish(self, release: Release, title: str, body: str, commit: str | None = None) -> Release:
        """See ``publish.assets.ReleaseHost.publish``.

        GitHub makes what is published the newest release, unless ``make_latest`` says otherwise.
        """
        ours = {"tag_name": release.tag, "name": title, "body": body, "prerelease": False}
        content = {**ours, "draft": False, **_target(commit)}
        if release.id in self._older:
            content["make_latest"] = "false"
        published = self._http.retry(
            f"publish {release.tag}",
            lambda: self._change(release, content),
            find_done=lambda: self._public(release),
        )
        if published.draft:
            raise TransferError(
                f"GitHub left {release.tag} a draft without saying why",
                advice=f"Look at {published.html_url}",
            )
        return published

    def withdraw(self, release: Release) -> Release:
        """See ``publish.assets.ReleaseHost.withdraw``."""
        newest = self.latest()
        if newest is not None and newest.id != release.id:
            self._older.add(release.id)
        withdrawn = self._http.retry(
            f"withdraw {release.tag}",
            lambda: self._change(release, {"tag_name": release.tag, "draft": True}),
        )
        if not withdrawn.draft:
            raise TransferError(
                f"GitHub left {release.tag} public without saying why",
                advice=f"Look at {withdrawn.html_url}",
            )
        return withdrawn

    def _is_administered(self) -> bool:
        reply = self._http.call("GET", f"/repos/{self._repository}", wanted=(_OK,))
        return _permissions(reply).get("admin") is True

    def _change(self, release: Release, content: Mapping[str, object]) -> Release:
        path = f"{self._root}/{release.id}"
        return _release(self._http.attempt("PATCH", path, wanted=(_OK,), content=content).json)

    def _public(self, release: Release) -> Release | None:
        """Return the release if it is public, else ``None``: an immutable release is not published twice."""
        public = self.published(release.tag)
        return public if public and public.id == release.id else None

    def _create(self, content: Mapping[str, object]) -> Release:
        return _release(self._http.attempt("POST", self._root, wanted=(_CREATED,), content=content).json)

    def _send(self, release: Release, file: LocalFile) -> Asset:
        with self._reporter.progress(file.name, file.size) as advance:
            reply = self._http.attempt(
                "POST",
                release.upload_url.split("{", 1)[0],
                wanted=(_CREATED, _UNPROCESSABLE),
                params={"name": file.name},
                data=FileBody(file, advance),
            )
        asset = self._with_digest(_created(reply, file))
        if not matches(asset, file):
            got = f"{asset.size} bytes, {asset.digest}, state {asset.state}"
            what = f"wanted {file.size} bytes, {file.digest}; GitHub got {got}"
            raise IntegrityError(what, retry_after=0.0)
        return asset

    def _fetch(self, asset: Asset, limit: int) -> bytes:
        data = b"".join(self._http.attempt_bytes(f"{self._root}/assets/{asset.id}", limit))
        got = named_digest(data)
        if len(data) != asset.size or asset.digest not in (None, got):
            wanted = f"{asset.size} bytes, {asset.digest}"
            raise IntegrityError(f"wanted {wanted}; got {len(data)} bytes, {got}", retry_after=0.0)
        return data

    def _with_digest(self, asset: Asset) -> Asset:
        """Return the asset, asked for again if it has no digest: some hosts compute it after the upload."""
        if asset.digest is not None:
            return asset
        later = self._http.call("GET", f"{self._root}/assets/{asset.id}", wanted=(_OK,))
        return self._read_back(_asset(later.json))

    def _read_back(self, asset: Asset) -> Asset:
        """Return the asset with the digest of its bytes, which are downloaded if the host states none."""
        if asset.digest is not None or asset.state != UPLOADED:
            return asset
        if asset.id not in self._read:
            what = f"read {asset.name} back, since the host states no digest"
            self._read[asset.id] = self._http.retry(what, lambda: self._digest_of(asset))
        return replace(asset, digest=self._read[asset.id])

    def _digest_of(self, asset: Asset) -> str:
        running = RunningDigest()
        with self._reporter.progress(f"read back {asset.name}", asset.size) as advance:
            for block in self._http.attempt_bytes(f"{self._root}/assets/{asset.id}", asset.size):
                running.update(block)
                advance(len(block))
        if running.digest.size != asset.size:
            raise TransferError(f"wanted {asset.size} bytes; got {running.digest.size}", retry_after=0.0)
        return f"sha256:{running.digest.sha256}"

    def _find_uploaded(self, release: Release, file: LocalFile) -> Asset | None:
        for asset in self.assets(release):
            if asset.name == file.name and matches(asset, file):
                return asset
            if asset.name == file.name:
                self.delete(asset)
        return None

    def _pages(self, path: str) -> Iterator[object]:
        number = 1
        while True:
            reply = self._http.call("GET", path, wanted=(_OK,), params={"per_page": _PAGE, "page": number})
            if not isinstance(reply.json, list):
                raise _not_github(path, "a list was wanted")
            yield from reply.json
            if len(reply.json) < _PAGE:
                return
            number += 1


def _permissions(repository: GitHubReply) -> Mapping[str, object]:
    """Return the permissions of the token's user; empty if GitHub does not report them."""
    permissions = _object(repository.json).get("permissions")
    return permissions if isinstance(permissions, dict) else {}


def _target(commit: str | None) -> dict[str, str]:
    """Return the request's field for the commit of a new tag; without it GitHub tags the default branch."""
    return {"target_commitish": commit} if commit else {}


def _created(reply: GitHubReply, file: LocalFile) -> Asset:
    if reply.status == _CREATED:
        return _asset(reply.json)
    if "already_exists" in codes_in(reply.json):
        raise TransferError("GitHub has an asset of that name already", retry_after=_SOON)
    raise TransferError(f"{file.name}: GitHub will not take it", cause=explain(reply.json))


def _release(value: object) -> Release:
    fields = _object(value)
    embedded, target = fields.get("assets"), str(fields.get("target_commitish"))
    return Release(
        id=_field(fields, "id", int),
        tag=_field(fields, "tag_name", str),
        draft=_field(fields, "draft", bool),
        immutable=fields.get("immutable") is True,
        assets=tuple(_asset(item) for item in embedded) if isinstance(embedded, list) else (),
        upload_url=_field(fields, "upload_url", str),
        html_url=_field(fields, "html_url", str),
        commit=target if _COMMIT.fullmatch(target) else None,
    )


def _asset(value: object) -> Asset:
    fields = _object(value)
    digest = fields.get("digest")
    return Asset(
        name=_field(fields, "name", str),
        size=_field(fields, "size", int),
        digest=digest if isinstance(digest, str) else None,
        state=_field(fields, "state", str),
        id=_field(fields, "id", int),
    )


def _not_github(what: str, why: str) -> TransferError:
    return TransferError(f"{what} is not GitHub's API", cause=why, advice="Check publish.api.")


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _not_github("The answer", "an object was wanted")
    return value


def _field(fields: Mapping[str, object], key: str, kind: type[V]) -> V:
    value = fields.get(key)
    if not isinstance(value, kind):
        raise _not_github("The answer", f"{key} is {value!r}")
    return value
