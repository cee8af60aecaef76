"""A double of GitHub's releases on loopback: files on disk, GitHub's semantics, switches for what goes wrong.

Two ports stand for GitHub's two kinds of host: the first for api.github.com and github.com, the second for
uploads.github.com and the object store behind downloads. By hand: ``python -m tests.doubles.github --help``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.doubles.github_base import Fault, Seen, StoredAsset, StoredRelease
from tests.doubles.github_handlers import ApiHandler, StorageHandler

TOKEN = "ghp_doubleTokenThatMustNeverShow"
REPOSITORY = "ortpacks/ortpacks"


class Server(ThreadingHTTPServer):
    """One of the two ports."""

    daemon_threads = True

    def __init__(self, double: GitHubDouble, host: str, port: int) -> None:
        self.double = double
        self.host = host
        super().__init__(("127.0.0.1", port), ApiHandler if host == "api" else StorageHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class GitHubDouble:
    """One repository and its releases. ``digests`` off: a host too old to tell digests."""

    def __init__(
        self,
        root: Path,
        *,
        port: int = 0,
        repository: str = REPOSITORY,
        token: str = TOKEN,
        immutable: bool = False,
        digests: bool = True,
    ) -> None:
        self.root = root
        self.repository = repository
        self.token = token
        self.immutable = immutable
        self.digests = digests
        self.releases: dict[int, StoredRelease] = {}
        self.tags: dict[str, str] = {}
        """The repository's tags and where they were made."""
        self.requests: list[Seen] = []
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._ids = iter(range(1, 1_000_000))
        self.api = Server(self, "api", port)
        self.storage = Server(self, "storage", 0)
        root.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """Base of the API and of plain downloads: ``<url>/<owner>/<repo>/releases/download/<tag>/<name>``."""
        return self.api.url

    @contextmanager
    def running(self) -> Iterator[GitHubDouble]:
        servers = (self.api, self.storage)
        threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            for server in servers
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()

    def fail(self, route: str, kind: str, *, times: int = 1, after: int = 0, seconds: int = 7) -> None:
        """Make the next ``times`` requests of a route go wrong."""
        self._faults += [Fault(route, kind, after, seconds) for _ in range(times)]

    def take_fault(self, route: str) -> Fault | None:
        with self.lock:
            fault = next((fault for fault in self._faults if fault.route == route), None)
            if fault is not None:
                self._faults.remove(fault)
            return fault

    def writes(self) -> list[Seen]:
        """Every request that changes something."""
        return [seen for seen in self.requests if seen.method not in ("GET", "HEAD")]

    def create(self, tag: str, title: str, body: str, *, draft: bool) -> StoredRelease:
        with self.lock:
            release = StoredRelease(next(self._ids), tag, title, body, draft=True)
            self.releases[release.id] = release
            if not draft:
                self.publish(release)
            return release

    def publish(self, release: StoredRelease) -> None:
        with self.lock:
            release.draft = False
            self.tags.setdefault(release.tag, release.target)
            release.immutable = self.immutable
            release.order = next(self._ids)

    def store(
        self, release: StoredRelease, name: str, data: bytes | Path, *, state: str = "uploaded"
    ) -> StoredAsset:
        """Put an asset in place: bytes, or a file of the root that is taken over."""
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
        public = [item for item in self.releases.values() if not item.draft]
        return max(public, key=lambda item: item.order, default=None)

    def contents(self, tag: str) -> dict[str, bytes]:
        """Name to bytes of every whole asset of a tag's newest release, draft or not."""
        release = [item for item in self.releases.values() if item.tag == tag][-1]
        return {
            item.name: item.file.read_bytes() for item in release.assets.values() if item.state == "uploaded"
        }

    def release_json(self, release: StoredRelease) -> dict[str, object]:
        root = f"{self.url}/repos/{self.repository}/releases/{release.id}"
        upload = f"{self.storage.url}/repos/{self.repository}/releases/{release.id}/assets{{?name,label}}"
        return {
            "id": release.id,
            "url": root,
            "html_url": f"{self.url}/{self.repository}/releases/tag/{release.tag}",
            "upload_url": upload,
            "tag_name": release.tag,
            "target_commitish": release.target,
            "name": release.title,
            "body": release.body,
            "draft": release.draft,
            "prerelease": False,
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
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="GitHub's releases on loopback, for use by hand.")
    parser.add_argument("--root", type=Path, required=True, help="directory for the assets")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--repository", default=REPOSITORY)
    parser.add_argument("--token", default=TOKEN)
    options = parser.parse_args()
    double = GitHubDouble(options.root, port=options.port, repository=options.repository, token=options.token)
    with double.running():
        sys.stdout.write(f"{double.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
