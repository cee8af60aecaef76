"""Tests of what publish and mirror refuse before they read, hash or write anything."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.errors import BuilderError, CheckFailedError, ConfigError, TransferError
from builder.io.archive.unpacking import manifest_bytes
from builder.io.wiring import Wiring
from builder.publish.prepare import PublishOptions
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.publishing import TAG
from tests.support.factories.releases import write_two_packages
from tests.support.factories.wheel_release import open_wheel_shop
from tests.support.factories.workplace import wired
from tests.support.fakes.ports import FakeRunner

OLDER = "gpu-libs-v1.21.0"

READER = "ghp_mayReadOnly"
"""A token that may not write."""


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    """Return a project with two packages in ``dist`` and without ``gh``."""
    (tmp_path / "dist").mkdir()
    write_two_packages(tmp_path / "dist")
    return wired(root, tmp_path / "dist", os.environ, runner=FakeRunner())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the packages whose manifests are read from now on, as each use of one begins."""
    names: list[str] = []

    def counted(package: Path) -> bytes:
        names.append(package.name)
        return manifest_bytes(package)

    monkeypatch.setattr("builder.io.archive.unpacking.manifest_bytes", counted)
    return names


@pytest.mark.parametrize(
    ("token", "repository", "tag", "kind", "said"),
    [
        ("", REPOSITORY, None, ConfigError, "no GitHub token"),
        ("ghp_expired", REPOSITORY, None, TransferError, "401"),
        ("two words", REPOSITORY, None, ConfigError, "blanks"),
        (TOKEN, "ortpacks/elsewhere", None, TransferError, "404"),
        (READER, REPOSITORY, None, TransferError, "not write"),
        (TOKEN, REPOSITORY, "v1..2", ConfigError, "cannot be a tag"),
    ],
)
def test_what_needs_no_package_is_refused_before_one_is_read(
    shop: Wiring,
    read: list[str],
    token: str,
    repository: str,
    tag: str | None,
    kind: type[BuilderError],
    said: str,
) -> None:
    """Defect: publish asked for the token after it had hashed and verified every package."""
    before = {path.name for path in shop.dist.iterdir()}
    shop.env = {**shop.env, "GITHUB_TOKEN": token, "GH_TOKEN": ""}
    with GitHubDouble(
        shop.dist.parent / "github", token=READER if token == READER else TOKEN
    ).running() as github:
        github.push = token != READER
        project = releasing.with_target(shop, github.url, repository)
        for dry in (True, False):
            with pytest.raises(kind, match=said):
                releasing.publish_dist(shop, PublishOptions(tag=tag, dry_run=dry), project)
    assert read == []
    assert {path.name for path in shop.dist.iterdir()} == before


def test_the_tag_of_another_onnxruntime_is_refused_and_a_further_release_of_the_same_is_not(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``publish.tag`` without ``{version}`` names a version that stays while the packages' changes."""
    stall = open_wheel_shop(root, tmp_path, monkeypatch)
    stall.mirror(f"{TAG}-2")
    assert (stall.root / f"{TAG}-2/index.json").is_file()
    before = {path.name: path.stat().st_mtime_ns for path in stall.dist.iterdir()}
    configured = stall.shop.project
    stall.shop.__dict__["project"] = replace(configured, publish=replace(configured.publish, tag=OLDER))
    with GitHubDouble(tmp_path / "github").running() as github:
        project = releasing.with_target(stall.shop, github.url, REPOSITORY)
        for dry in (True, False):
            with pytest.raises(CheckFailedError, match=rf"R018 {OLDER}[\s\S]*1\.23\.2[\s\S]*1\.21\.0"):
                releasing.publish_dist(stall.shop, PublishOptions(dry_run=dry), project)
        assert github.writes() == []
    with pytest.raises(CheckFailedError, match=f"R018 {OLDER}"):
        releasing.mirror_dist(stall.shop, PublishOptions(), str(stall.root))
    assert not (stall.root / OLDER).exists()
    assert {path.name: path.stat().st_mtime_ns for path in stall.dist.iterdir()} == before
