"""A double of GitHub's releases on loopback, which keeps assets as files and can inject faults.

It has two ports: the first for api.github.com and github.com, the second for uploads.github.com and the
object store behind downloads. ``python -m tests.doubles.github --help`` runs the double by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.doubles import github_required_keys
from tests.doubles.github_base import Fault, Seen, StoredAsset, StoredRelease
from tests.doubles.github_handlers import ApiHandler, StorageHandler
from tests.doubles.loopback import listening

HEAD = "4" * 40
"""Newest commit of every branch."""
TOKEN = "ghp_doubleTokenThatMustNeverShow"
REPOSITORY = "ortpacks/ortpacks"


class Server(ThreadingHTTPServer):
    """One of the double's two ports."""

    def __init__(self, double: GitHubDouble, host: str, port: int) -> None:
        self.double = double
        self.host = host
        super().__init__(("127.0.0.1", port), ApiHandler if host == "api" else StorageHandler)

    def server_bind(self) -> None:
        """Bind to a port by its number: otherwise the socket loses the port while it does not listen."""
        if not self.server_address[1]:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.server_address = probe.getsockname()
        super().server_bind()

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Print no traceback for a broken connection, as tests kill clients."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class GitHubDouble:
    """A host with one repository and its releases."""

    def __init__(
        self,
        root: Path,
        *,
        port: int = 0,
        token: str = TOKEN,
        immutable: bool = False,
    ) -> None:
        self.root = root
        self.repository = REPOSITORY
        self.token = token
        self.immutable = immutable
        self.digests = True
        """Whether answers state digests of assets; those of an old GitHub Enterprise Server do not."""
        self.push: bool | None = True
        """Value of ``permissions.push`` in answers to a token; ``None``: answers have no ``permissions``."""
        self.admin = False
        """Value of ``permissions.admin``; only an administrator may read whether releases are immutable."""
        self.enterprise: str | None = None
        """Value of ``X-GitHub-Enterprise-Version``; a server with this header has no immutable releases."""
        self.scopes: str | None = None
        """Value of ``X-OAuth-Scopes``; only answers to a classic token have this header."""
        self.releases: dict[int, StoredRelease] = {}
        self.tags: dict[str, str] = {}
        """Hash of the object (commit or annotated tag) that each tag of the repository names."""
        self.annotated: dict[str, str] = {}
        """Hash of the commit or annotated tag that each annotated tag names, by the tag's own hash."""
        self.requests: list[Seen] = []
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._ids = iter(range(1, 1_000_000))
        self.api = Server(self, "api", port)
        self.storage = Server(self, "storage", 0)
        self.uploads = self.storage.url
        """The address that a release's ``upload_url`` begins with."""
        root.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """The base of the API and of downloads: ``<url>/<owner>/<repo>/releases/download/<tag>/<name>``."""
        return self.api.url

    @contextmanager
    def running(self) -> Iterator[GitHubDouble]:
        with listening(self.api), listening(self.storage):
            yield self

    def fail(
        self, route: str, kind: str, *, times: int = 1, after: int = 0, seconds: int = 7, skip: int = 0
    ) -> None:
        """Let ``times`` requests of a route fail with ``kind`` (see ``Fault``), after ``skip`` good ones."""
        self._faults += [Fault(route, kind, after, seconds, 0 if number else skip) for number in range(times)]

    def take_fault(self, route: str) -> Fault | None:
        with self.lock:
            fault = next((fault for fault in self._faults if fault.route == route), None)
            if fault is None:
                return None
            if fault.skip:
                fault.skip -= 1
                return None
            self._faults.remove(fault)
            return fault

    def forget_faults(self) -> int:
        """Remove all faults that no request has met yet, and return their number."""
        with self.lock:
            left, self._faults = self._faults, []
        return len(left)

    def down(self) -> None:
        """Let both ports refuse connections."""
        for server in (self.api, self.storage):
            server.socket.shutdown(socket.SHUT_RDWR)

    def up(self) -> None:
        """Let both ports listen again."""
        for server in (self.api, self.storage):
            server.socket.listen()

    def writes(self) -> list[Seen]:
        """Return every request with a method other than GET and HEAD."""
        return [seen for seen in self.requests if seen.method not in ("GET", "HEAD")]

    def create(self, tag: str, title: str, body: str, *, draft: bool) -> StoredRelease:
        with self.lock:
            release = StoredRelease(next(self._ids), tag, title, body, draft=True)
            self.releases[release.id] = release
            if not draft:
                self.publish(release)
            return release

    def publish(self, release: StoredRelease, *, newest: bool = True) -> None:
        with self.lock:
            release.draft = False
            made = release.target if re.fullmatch("[0-9a-f]{40}", release.target) else HEAD
            self.tags.setdefault(release.tag, made)
            release.immutable = self.immutable
            if newest:
                release.order = next(self._ids)

    def store(
        self, release: StoredRelease, name: str, data: bytes | Path, *, state: str = "uploaded"
    ) -> StoredAsset:
        """Add an asset to a release and return it; a file given as ``data`` is moved."""
        with self.lock:
            number = next(self._ids)
            kept = self.root / f"{number}-{name}"
            if isinstance(data, Path):
                data.replace(kept)
            else:
                kept.write_bytes(data)
            with kept.open("rb") as stream:
                digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
            whole = state == "uploaded"
            size = kept.stat().st_size if whole else 0
            asset = StoredAsset(number, name, size, digest if whole and self.digests else None, state, kept)
            release.assets[number] = asset
            return asset

    def published(self, tag: str) -> StoredRelease | None:
        return next((item for item in self.releases.values() if item.tag == tag and not item.draft), None)

    def latest(self) -> StoredRelease | None:
        public = [item for item in self.releases.values() if not item.draft and not item.prerelease]
        return max(public, key=lambda item: item.order, default=None)

    def contents(self, tag: str) -> dict[str, bytes]:
        """Return the bytes by name of every uploaded asset of a tag's newest release, draft or not."""
        release = [item for item in self.releases.values() if item.tag == tag][-1]
        return {
            item.name: item.file.read_bytes() for item in release.assets.values() if item.state == "uploaded"
        }

    def release_json(self, release: StoredRelease) -> dict[str, object]:
        root = f"{self.url}/repos/{self.repository}/releases/{release.id}"
        upload = f"{self.uploads}/repos/{self.repository}/releases/{release.id}/assets{{?name,label}}"
        return {
            "id": release.id,
            "url": root,
            **github_required_keys.of_release(root, draft=release.draft),
            "html_url": f"{self.url}/{self.repository}/releases/tag/{release.tag}",
            "upload_url": upload,
            "tag_name": release.tag,
            "target_commitish": release.target,
            "name": release.title,
            "body": release.body,
            "draft": release.draft,
            "prerelease": release.prerelease,
            "immutable": release.immutable,
            "assets": [self.asset_json(release, asset) for asset in release.assets.values()],
        }

    def asset_json(self, release: StoredRelease, asset: StoredAsset) -> dict[str, object]:
        page = f"{self.url}/{self.repository}/releases"
        return {
            "id": asset.id,
            "url": f"{self.url}/repos/{self.repository}/releases/assets/{asset.id}",
            "browser_download_url": f"{page}/download/{release.tag}/{asset.name}",
            "name": asset.name,
            "label": None,
            "state": asset.state,
            "content_type": "application/octet-stream",
            "size": asset.size,
            "digest": asset.digest,
            **github_required_keys.of_asset(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="GitHub's releases on loopback, for use by hand.")
    parser.add_argument("--root", type=Path, required=True, help="directory for the assets")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    options = parser.parse_args()
    with GitHubDouble(options.root, port=options.port).running() as double, suppress(KeyboardInterrupt):
        print(double.url, flush=True)  # noqa: T201 - for who runs it by hand
        threading.Event().wait()


if __name__ == "__main__":
    main()
