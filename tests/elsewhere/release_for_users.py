"""Factory of a release for users' computers: packages of several builds, published to the GitHub double."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from builder.build.own_programs import write_client
from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.plan import PlanOptions
from builder.contents.integrity import read_checksums, update_checksums
from builder.formats.package_names import Form
from builder.io.wiring import Wiring
from builder.publish.locations import index_url
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions, ReleaseState
from builder.publish.publish import publish_release
from tests.doubles.github import GitHubDouble
from tests.support import ROOT
from tests.support.factories.publishing import github_of, ports, project_at
from tests.support.fakes.ports import FakeReporter

TAG = "gpu-libs-test"
AS_THEY_COME = Leniency(lean=True, unresolved=True, mixed=True, partial=True)
"""Leniency for a test's release, whose minimal packages have another version than the repacked ones."""


def bundling(dist: Path, **changes: object) -> Wiring:
    """Return a wiring with ``dist`` whose project's ``bundle`` has ``changes``."""
    shop = Wiring(ROOT, dist=dist, reporter=FakeReporter())
    bundle = dataclasses.replace(shop.project.bundle, **changes)  # type: ignore[arg-type]
    shop.__dict__["project"] = dataclasses.replace(shop.project, bundle=bundle)
    return shop


def cpu_packages(dist: Path) -> Sequence[Path]:
    """Build the package without CUDA and return its archives, zstd and gzip."""
    shop = bundling(dist, forms=(Form.ZST, Form.GZ))
    options = BuildOptions(plan_options=PlanOptions(base="assembled"))
    return VariantBuild(shop, shop.project.providers["cpu"], options, shop.reporter).build()


@contextmanager
def released(packages: Sequence[Path], folder: Path) -> Iterator[GitHubDouble]:
    """Publish the packages and a client for their index on the GitHub double, inside the block.

    The packages are not verified again, as their builds did so.
    """
    double = GitHubDouble(folder / "github")
    dist = folder / "dist"
    for package in packages:
        _take(package, dist)
    with double.running():
        shop = Wiring(ROOT, dist=dist, reporter=FakeReporter())
        project = project_at(double.url)
        write_client(shop, index_url(project.publish, TAG))
        options = PublishOptions(tag=TAG, allow=AS_THEY_COME)
        done = publish_release(dist, project, ports(github_of(double), FakeReporter()), options)
        assert done.state is ReleaseState.PUBLISHED
        yield double


def address(double: GitHubDouble, name: str) -> str:
    """Return the URL of a file of the release."""
    return f"{double.url}/{double.repository}/releases/download/{TAG}/{name}"


def _take(package: Path, dist: Path) -> None:
    """Link a package into ``dist`` and copy its line of SHA256SUMS."""
    sums = read_checksums(package.parent)
    update_checksums(dist, put={package.name: sums[package.name]})
    os.link(package, dist / package.name)
