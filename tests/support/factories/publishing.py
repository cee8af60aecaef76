"""Factory of a dist folder with two packages, which the real client publishes on the GitHub double."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jinja2 import FileSystemLoader

from builder.config.load import load_project
from builder.config.variants import Project
from builder.formats.manifest import Manifest
from builder.publish.assets import ReleaseHost
from builder.publish.github.http import GitHubHttp, RetryPolicy
from builder.publish.github.releases import GitHub
from builder.publish.prepare import PublishOptions, PublishPorts, ReleaseStatus
from builder.publish.publish import publish_release, read_release_status
from builder.publish.signing import Signing
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support import ROOT
from tests.support.factories.releases import FakeTime, append_sum, write_package, write_two_packages
from tests.support.factories.signing import signing
from tests.support.fakes.ports import FakeReporter

TAG = "gpu-libs-v1.23.2"
"""Tag of the packages' release: ``publish.tag`` of variants.yaml with their version."""

COMMIT = "a" * 40
"""Commit of a tag that exists before its release."""

_TEMPLATES = FileSystemLoader(ROOT / "templates")
"""One for all desks: templates are compiled once for each loader."""

ATTEMPTS = 4
"""Number of attempts of each request: so many faults in a row end a run."""


@dataclasses.dataclass
class Desk:
    """A dist folder, the GitHub double, and the real code that publishes from one to the other."""

    dist: Path
    github: GitHubDouble
    project: Project
    reporter: FakeReporter
    verified: list[Path] = dataclasses.field(default_factory=list)
    time: FakeTime = dataclasses.field(default_factory=FakeTime)
    verify: Callable[[Path], None] = lambda path: None
    signing: Signing | None = None

    def publish(self, options: PublishOptions | None = None, token: str = TOKEN) -> ReleaseStatus:
        return publish_release(self.dist, self.project, self._ports(token), options or PublishOptions())

    def rebuild(self, *made: Manifest) -> None:
        """Replace the packages of these manifests' variants by new ones; packages of other variants stay."""
        (self.dist / "SHA256SUMS").unlink()
        for old in (old for one in made for old in self.dist.glob(f"ortpacks-{one.variant}-*")):
            old.unlink()
        for other in sorted(self.dist.glob("ortpacks-*.tar.zst")):
            append_sum(self.dist, other)
        for one in made:
            write_package(self.dist, one, padding=10)

    def status(self) -> ReleaseStatus:
        return read_release_status(self.dist, TAG, self._ports(TOKEN))

    def _ports(self, token: str) -> PublishPorts:
        host = github(self.github.url, token, self.time, self.reporter)
        made = ports(host, self.reporter, self._verify)
        return dataclasses.replace(made, repository=host, signing=self.signing)

    def _verify(self, path: Path) -> None:
        self.verified.append(path)
        self.verify(path)

    @property
    def output(self) -> str:
        return "\n".join(self.reporter.lines)


def ports(
    host: ReleaseHost, reporter: FakeReporter, verify: Callable[[Path], None] = lambda path: None
) -> PublishPorts:
    return PublishPorts(host=host, reporter=reporter, verify=verify, loader=_TEMPLATES)


def github(api: str, token: str, time: FakeTime, reporter: FakeReporter) -> GitHub:
    """Return the real client of the double's repository."""
    policy, clock = RetryPolicy(attempts=ATTEMPTS), time.clock
    http = GitHubHttp(api=api, token=token, reporter=reporter, sleep=time.sleep, clock=clock, policy=policy)
    return GitHub(repository=REPOSITORY, http=http, reporter=reporter)


def github_of(double: GitHubDouble) -> GitHub:
    """Return the real client of the double's repository, which makes no pauses."""
    return github(double.url, double.token, FakeTime(), FakeReporter())


def project_at(api: str) -> Project:
    project = _project()
    target = dataclasses.replace(project.publish, api=api, repository=REPOSITORY)
    return dataclasses.replace(project, publish=target)


@functools.cache
def _project() -> Project:
    return of_two_variants(load_project((ROOT / "variants.yaml").read_text(), "variants.yaml"))


def of_two_variants(project: Project) -> Project:
    """Return the project with the two variants of ``write_two_packages`` alone."""
    two = {name: project.variants[name] for name in ("legacy", "modern")}
    return dataclasses.replace(project, variants=two, providers={})


@contextmanager
def open_desk(tmp_path: Path) -> Iterator[Desk]:
    dist = tmp_path / "dist"
    dist.mkdir()
    write_two_packages(dist)
    client = dist / "ortpacks.pyz"
    client.write_bytes(b"PK the client")
    with GitHubDouble(tmp_path / "github").running() as github:
        yield Desk(dist, github, project_at(github.url), FakeReporter(), signing=signing())


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder by relative path; for a link the text of its target."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        )
        for path in found
    }


def prepare(desk: Desk, before: str) -> None:
    """Bring the double into the state ``before``.

    ``nothing``; ``tagged``: the tag names ``COMMIT``; ``leftovers``: a draft of the tag has assets;
    ``older``: there is a release of another tag; ``other``: the tag's release has other files than
    ``dist``.
    """
    if before == "tagged":
        desk.github.tags[TAG] = COMMIT
    if before == "leftovers":
        draft = desk.github.create(TAG, "", "", draft=True)
        desk.github.store(draft, "index.json", b"old")
        desk.github.store(draft, "ortpacks.pyz", b"", state="starter")
        desk.github.store(draft, "other.tar.zst", b"not ours")
    if before == "older":
        desk.publish(PublishOptions(tag="older"))
    if before == "other":
        desk.publish()
        (package,) = desk.dist.glob("ortpacks-legacy*.tar.zst")
        padding = 120_000 if package.stat().st_size > 150_000 else 200_000
        (desk.dist / "SHA256SUMS").unlink()
        write_two_packages(desk.dist, legacy=padding)
