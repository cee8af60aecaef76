"""Fixtures with a site, and with a ``dist`` in which a variant was built."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.github import GitHubDouble
from tests.support import ROOT
from tests.support.factories.workplace import Site, variant_build, with_tools


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return with_tools(Site(ROOT, tmp_path), monkeypatch)


@pytest.fixture(scope="session")
def legacy_dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ``dist`` in which legacy was built, which tests only read."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        site = with_tools(Site(ROOT, tmp_path_factory.mktemp("legacy")), monkeypatch)
        variant_build(site).build()
    return site.dist


@pytest.fixture
def built(site: Site, legacy_dist: Path) -> Site:
    """Return the site after a build of legacy, which its engine has not seen."""
    shutil.copytree(legacy_dist, site.dist)
    return site


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHubDouble]:
    """Yield a double whose releases are immutable, for a token that may ask so."""
    with GitHubDouble(tmp_path / "github", immutable=True).running() as double:
        double.admin = True
        yield double
