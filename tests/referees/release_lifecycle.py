"""The life of a release by the GitHub client: every request of the client, in its usual order."""

import hashlib
import time
from pathlib import Path

from builder.files.digest import LocalFile
from builder.publish.assets import Release
from builder.publish.github.http import GitHubHttp, RetryPolicy
from builder.publish.github.releases import GitHub
from tests.support.fakes.ports import FakeReporter

TAG = "gpu-libs/v1.31.1+full"
COMMIT = "e83c5163316f89bfbde7d9ab23ca2e25604af290"


def client(api: str, token: str, repository: str) -> GitHub:
    """Return the client for the API at ``api``, which does not repeat failed requests."""
    reporter = FakeReporter()
    patience = RetryPolicy(attempts=1, between_writes=0)
    http = GitHubHttp(
        api=api, token=token, reporter=reporter, sleep=lambda _: None, clock=time.time, policy=patience
    )
    return GitHub(repository=repository, http=http, reporter=reporter)


def file_of(folder: Path, name: str, data: bytes) -> LocalFile:
    path = folder / name
    path.write_bytes(data)
    return LocalFile(path, len(data), hashlib.sha256(data).hexdigest())


def live(host: GitHub, file: LocalFile) -> Release:
    """Create, fill and publish a release of one file, and withdraw it to a draft."""
    host.require_access()
    host.has_immutable_releases()
    host.commit_of(TAG)
    host.published(TAG)
    host.drafts(TAG)
    release = host.create_draft(TAG, "ORT 1.31.1 für GPUs", "notes", COMMIT)
    asset = host.upload(release, file)
    host.assets(release)
    host.download(asset, limit=1024)
    host.delete(asset)
    host.publish(release, "ORT 1.31.1", "notes", COMMIT)
    host.latest()
    host.published(TAG)
    return host.withdraw(release)
