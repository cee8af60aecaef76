"""A dist folder with two packages, the GitHub double, and publish with the real client between them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jinja2 import FileSystemLoader

from builder.adapters.archive import PackageArchive
from builder.adapters.checksums import ChecksumFile
from builder.adapters.github import GitHub
from builder.adapters.github_http import GitHubHttp, Patience
from builder.adapters.partfile import part_file
from builder.config import load_project
from builder.core.variant import Project
from builder.stages.publish import Published, PublishOptions, PublishPorts, publish
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.fakes import FakeReporter
from tests.releases import FakeTime, manifest, write_package
from tests.verbs import ROOT

TAG = "gpu-libs-v1.23.2"
"""``publish.tag`` of variants.yaml with the packages' version."""


@dataclasses.dataclass
class Desk:
    """A dist folder, the double, and everything between."""

    dist: Path
    github: GitHubDouble
    project: Project
    reporter: FakeReporter
    verified: list[Path] = dataclasses.field(default_factory=list)
    time: FakeTime = dataclasses.field(default_factory=FakeTime)
    verify: Callable[[Path], None] = lambda path: None

    def publish(self, options: PublishOptions | None = None, token: str = TOKEN) -> Published:
        http = GitHubHttp(
            api=self.github.url,
            token=token,
            reporter=self.reporter,
            sleep=self.time.sleep,
            clock=self.time.clock,
            patience=Patience(attempts=4),
        )
        ports = PublishPorts(
            host=GitHub(repository=REPOSITORY, http=http, reporter=self.reporter),
            archive=PackageArchive(reporter=self.reporter),
            checksums=ChecksumFile(),
            reporter=self.reporter,
            verify=self._verify,
            write=part_file,
            loader=FileSystemLoader(ROOT / "templates"),
        )
        return publish(self.dist, self.project, ports, options or PublishOptions())

    def _verify(self, path: Path) -> None:
        self.verified.append(path)
        self.verify(path)

    @property
    def output(self) -> str:
        return "\n".join(self.reporter.lines)


@functools.cache
def _project() -> Project:
    return load_project((ROOT / "variants.yaml").read_text(), "variants.yaml")


@contextmanager
def open_desk(tmp_path: Path) -> Iterator[Desk]:
    dist = tmp_path / "dist"
    dist.mkdir()
    write_package(dist, manifest("legacy"))
    write_package(dist, manifest("modern", origin="wheel", profile=None, revision=None), padding=150_000)
    client = dist / "ortpacks.pyz"
    client.write_bytes(b"PK the client")
    with GitHubDouble(tmp_path / "github").running() as github:
        project = _project()
        target = dataclasses.replace(project.publish, api=github.url, repository=REPOSITORY)
        yield Desk(dist, github, dataclasses.replace(project, publish=target), FakeReporter())


def here(dist: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dist.iterdir()}
