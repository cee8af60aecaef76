"""Tests from ``build --all`` to ``publish``: the packages of one build of a base are published unchanged.

Engine, wheels, root file systems and the host are stand-ins; planning, packing, proving and publishing are
real.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.releases.releasing import publish_dist, with_target
from builder.compile.plan import PlanOptions
from builder.config.inputs import Lock
from builder.config.variants import Origin
from builder.errors import CheckFailedError, ReleaseConflictError
from builder.formats.manifest import Manifest, loads
from builder.formats.package_names import Layout, Profile
from builder.io.archive.unpacking import manifest_bytes
from builder.publish.prepare import PublishOptions
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.doubles.github_handlers import MOVED
from tests.support.factories import repacked
from tests.support.factories.publishing import COMMIT
from tests.support.factories.workplace import Site, variant_build, with_tools
from tests.support.fakes.ports import NoEngine

EVERY_SM = (50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 120)

RELEASE = PlanOptions(base="assembled", release=True)


@pytest.fixture
def site(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = with_tools(Site(root, tmp_path, code=EVERY_SM), monkeypatch)
    repacked.lay(tmp_path / "cache")
    made.compiles = EVERY_SM
    made.shop.env = {**made.shop.env, "GITHUB_TOKEN": TOKEN}
    made.shop.sleep = lambda seconds: None  # GitHub wants a second between two writes, its double none
    project = made.shop.project
    onnxruntime = replace(project.onnxruntime, profile=Profile.FULL, origin=Origin.AUTO)
    made.shop.__dict__["project"] = replace(project, onnxruntime=onnxruntime)
    return made


def build(site: Site, name: str, plan_options: PlanOptions) -> list[Manifest]:
    # The fake engine's self-test answers are for packages with CUDA: others are built without an engine.
    site.use(site.engine if name in site.shop.project.variants else NoEngine())
    made = variant_build(site, name, plan=plan_options).build()
    return [loads(manifest_bytes(path), path.name) for path in made]


def publish(site: Site, github: GitHubDouble, options: PublishOptions) -> str:
    publish_dist(site.shop, options, with_target(site.shop, github.url, REPOSITORY))
    return site.reporter.lines[-1]


def test_what_build_all_makes_is_published_without_any_allowance(site: Site, github: GitHubDouble) -> None:
    names = [name for name, variant in site.shop.project.packages.items() if variant.in_all]
    made = [one for name in names for one in build(site, name, PlanOptions(base="assembled"))]
    told = {(one.variant, one.layout, one.onnxruntime.profile) for one in made}
    assert told == {
        *((name, layout, "full") for name in ("legacy", "modern", "latest") for layout in ("full", "thin")),
        *((name, "full", None) for name in ("cpu", "directml", "coreml")),
    }
    said = publish(site, github, PublishOptions(dry_run=True))
    assert said == "gpu-libs-v1.21.0: dry-run"
    assert github.releases == {}
    site.shop.env = {**site.shop.env, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_SHA": COMMIT}
    assert publish(site, github, PublishOptions()).startswith("gpu-libs-v1.21.0: published")
    (release,) = github.releases.values()
    assert release.immutable
    github.tags["gpu-libs-v1.21.0"] = MOVED
    with pytest.raises(ReleaseConflictError, match=f"names commit {MOVED}, and the release is of {COMMIT}"):
        publish(site, github, PublishOptions())
    assert release.title == "ONNX Runtime 1.21.0 for every GPU generation"


def test_all_packages_of_a_base_name_its_revision_and_list_its_parts(site: Site) -> None:
    (revision,) = {one.base.revision for name in ("legacy", "latest") for one in build(site, name, RELEASE)}
    for package in site.dist.glob("ortpacks-legacy-*.tar.*"):
        package.unlink()
    site.rootfs.version = "2"
    (other,) = {one.base.revision for one in build(site, "legacy", RELEASE)}
    assert len({None, revision, other}) == 3
    assert site.built() == ["artifact"] * 3, "another root file system compiles anew"
    for provenance in site.dist.glob("ortpacks-l*.provenance.json"):
        definition = json.loads(provenance.read_text())["predicate"]["buildDefinition"]
        assert definition["internalParameters"]["baseRevision"] in {revision, other}
        listed = {
            one["name"] for one in definition["resolvedDependencies"] if "base" in one.get("annotations", {})
        }
        packages = {
            name.partition("_")[0] for name in listed if name.endswith(("_1_amd64.deb", "_2_amd64.deb"))
        }
        assert packages == {
            f"pool/{name}" for name in ("dpkg", *site.shop.project.bases["assembled"].system.packages)
        }


@pytest.mark.parametrize(
    ("flags", "lost", "refused"),
    [
        ({"profile": Profile.LEAN}, "", r"R008 ortpacks-legacy-\S+: Build with --profile full"),
        ({"base": "nvidia", "origin": Origin.SOURCE}, "", r"R009 image:nvidia/cuda\S+ no pin"),
        ({}, "wheel:silero-vad==6.2.3", r"R009 wheel:silero\S+: no pin .* `\./run lock --missing`"),
        ({"origin": Origin.SOURCE}, "wheel:nvidia-cudnn-cu12==9.10.2.21", "R009 wheel:nvidia-cudnn"),
    ],
    ids=["profile", "digest", "model", "library"],
)
def test_a_release_that_publish_would_refuse_is_refused_before_anything_is_compiled(
    site: Site, flags: dict[str, object], lost: str, refused: str
) -> None:
    """Defect: a key that the lock lacks was exit code 2 and ``./run lock``, an open pin R009."""
    site.engine.images.add("nvidia/cuda:12.9.1-devel-ubuntu22.04")
    pins = {key: pin for key, pin in site.shop.lock.pins.items() if key != lost}
    site.store.pins = site.shop.__dict__["lock"] = Lock(pins=pins)
    with pytest.raises(CheckFailedError, match=refused):
        build(site, "legacy", replace(RELEASE, **flags))  # type: ignore[arg-type]
    assert (site.built(), list(site.dist.glob("*.tar.zst"))) == ([], [])


def test_a_release_of_thin_packages_alone_holds_no_file_of_nvidias(site: Site) -> None:
    """Who does not meet NVIDIA's terms releases these alone; --release used to make both layouts."""
    project = site.shop.project
    site.shop.__dict__["project"] = replace(project, bundle=replace(project.bundle, layouts=(Layout.THIN,)))
    assert [one.layout for one in build(site, "legacy", RELEASE)] == ["thin", "thin"]
    provenance = next(site.dist.glob("ortpacks-legacy*.provenance.json"))
    command = json.loads(provenance.read_text())["predicate"]["buildDefinition"]["externalParameters"][
        "command"
    ]
    assert command == "./run build --variant legacy --base assembled --release"
