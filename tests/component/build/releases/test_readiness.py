"""Tests of ``doctor --release``: what is still to set, followed until a dry run goes through."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.build.verbs.releases.readiness import lines_of, release_readiness, require_ready
from builder.config.inputs import Lock, Pin, ort_wheel
from builder.config.variants import base_inputs
from builder.errors import CheckFailedError, ToolMissingError, ValidationError
from builder.facts.ort.source import SourceFacts
from builder.formats.package_names import Layout
from builder.io.process import Completed
from builder.publish.prepare import PublishOptions, ReleaseState
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.project_copy import Place
from tests.support.factories.releases import manifest, write_package
from tests.support.factories.signing import ALICE, CI, FIRST, pem
from tests.support.factories.signing import root as make_root
from tests.support.factories.wheel_release import WheelShop, open_wheel_shop
from tests.support.fakes.ports import FakeRunner
from tests.support.messages import Told
from tests.support.schemas import schema

READ = {"git:https://github.com/microsoft/onnxruntime@v1.30.0": SourceFacts("1.30.0", ())}
"""What was read of the source of base nvidia."""


@pytest.fixture
def stall(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, github: GitHubDouble) -> WheelShop:
    """Return a shop with a release of two packages for base nvidia, that is ready for a dry run."""
    made = open_wheel_shop(root, tmp_path, monkeypatch)
    made.set_wheels(False)
    project = made.shop.project
    made.shop.__dict__["project"] = replace(project, publish=replace(project.publish, api=github.url))
    cloned_from(made, f"https://github.com/{REPOSITORY}.git")
    pin_all(made)
    return made


def cloned_from(stall: WheelShop, url: str) -> None:
    stall.shop.__dict__["runner"] = FakeRunner({"git": Completed(0, f"{url}\n", "")})


def pin_all(stall: WheelShop) -> None:
    wanted = base_inputs(stall.shop.project, "nvidia", Lock({}))
    pinned = (*wanted, ort_wheel(stall.shop.project.bases["nvidia"].ort_version))
    stall.shop.__dict__["lock"] = Lock({one.key: Pin(revision="1" * 40) for one in pinned}, READ)


def points(stall: WheelShop, base: str = "auto", tag: str | None = None) -> dict[str, tuple[str, str, str]]:
    """Return state, finding and next step of each point."""
    found = release_readiness(stall.shop, base, tag).points
    return {one.name: (one.state.value, one.found, one.do) for one in found}


def test_one_point_after_the_other_until_the_dry_run_is_green(stall: WheelShop, told: Told) -> None:
    packages = {path: path.read_bytes() for path in stall.dist.iterdir()}
    for path in packages:
        path.unlink()
    cloned_from(stall, "git@github.com:you/fork.git")
    stall.shop.__dict__["lock"] = Lock({})
    stall.shop.env = {**stall.shop.env, "GITHUB_TOKEN": ""}

    def still_open() -> list[str]:
        return [name for name, (state, *_) in points(stall).items() if state == "open"]

    told("\n".join(lines_of(release_readiness(stall.shop))))
    with pytest.raises(CheckFailedError, match="repository, pins, dist, token") as caught:
        require_ready(release_readiness(stall.shop))
    assert caught.value.exit_code == 6
    cloned_from(stall, f"git@github.com:{REPOSITORY}.git")
    assert still_open() == ["pins", "dist", "token"]
    pin_all(stall)
    assert still_open() == ["dist", "token"]
    for path, content in packages.items():
        path.write_bytes(content)
    assert still_open() == ["token"]
    stall.shop.env = {**stall.shop.env, "GITHUB_TOKEN": TOKEN}
    ready = release_readiness(stall.shop)
    require_ready(ready)
    told("\n".join(lines_of(ready)))
    project = releasing.with_target(stall.shop)
    done = releasing.publish_dist(stall.shop, PublishOptions(dry_run=True), project)
    assert done.state is ReleaseState.DRY_RUN


@pytest.mark.parametrize(
    ("remote", "env", "state", "named"),
    [
        ("https://github.com/Ortpacks/ortpacks", None, "set", REPOSITORY),
        ("https://user:secret@github.com/you/fork", None, "open", "publish.repository: you/fork"),
        ("https://user:secret@github.com/you/fork", "you/third", "set", "you/third"),
        (None, None, "unknown", "no remote"),
    ],
)
def test_the_repository_is_that_of_the_checkout(
    stall: WheelShop, remote: str | None, env: str | None, state: str, named: str
) -> None:
    cloned_from(stall, remote or "")
    if remote is None:
        stall.shop.__dict__["runner"] = FakeRunner({"git": ToolMissingError("git is not there")})
    stall.shop.env = {**stall.shop.env, "GITHUB_TOKEN": "", **({"GITHUB_REPOSITORY": env} if env else {})}
    told = points(stall)["repository"]
    assert told[0] == state
    assert named in told[1] + told[2]
    assert "secret" not in told[1] + told[2]


def test_pins_are_those_of_the_base_that_compiled_or_was_named(stall: WheelShop) -> None:
    assert points(stall)["pins"] == ("set", "nvidia", "")
    state, found, _ = points(stall, base="redist")["pins"]
    assert (state, "redist:12.9.1/cuda_nvcc" in found) == ("open", True)
    assert "All pinned: nvidia" in found
    wheel = ort_wheel(stall.shop.project.bases["nvidia"].ort_version).key
    stall.shop.__dict__["lock"] = Lock(
        {key: pin for key, pin in stall.shop.lock.pins.items() if key != wheel}, READ
    )
    state, found, _ = points(stall)["pins"]
    assert (state, f"nvidia lacks 1: {wheel}" in found) == ("open", True)
    with pytest.raises(ValidationError, match="none of"):
        release_readiness(stall.shop, "alpine")


def test_a_release_of_official_wheels_alone_needs_no_base(stall: WheelShop) -> None:
    for path in stall.dist.iterdir():
        path.unlink()
    write_package(stall.dist, manifest("modern", origin="wheel", profile=None, revision=None))
    stall.shop.__dict__["lock"] = Lock({})
    assert points(stall)["pins"][0] == "set"


def test_thin_alone_is_compared_with_what_dist_holds(stall: WheelShop) -> None:
    project = stall.shop.project
    thin = replace(project, bundle=replace(project.bundle, layouts=(Layout.THIN,)))
    stall.shop.__dict__["project"] = thin
    state, found, _ = points(stall)["layouts"]
    assert (state, "ortpacks-modern-1.23.2-cuda12.9-linux-x64" in found) == ("open", True)
    (full,) = stall.dist.glob("ortpacks-modern-*.tar.zst")
    full.unlink()
    write_package(stall.dist, manifest("modern", layout="thin"))
    assert points(stall)["layouts"][0] == "set", (
        "the package for the CPU has one layout, without NVIDIA's files"
    )


TWO = make_root(ALICE, root_keys=[ALICE.public], release_keys=[ALICE.public, CI.public], release_threshold=2)
"""A root that needs two signatures for a release."""


@pytest.mark.parametrize(
    ("root", "key", "state"),
    [
        (FIRST, "", "unknown"),
        (FIRST, pem("ci"), "set"),
        (TWO, pem("ci"), "open"),
    ],
    ids=["no key", "the release key", "one of two keys"],
)
def test_signing_says_what_none_means_and_whether_the_key_is_here(
    place: Place, root: bytes, key: str, state: str
) -> None:
    (place.folder / "trust").mkdir()
    (place.folder / "trust/1.root.json").write_bytes(root)
    place.env["ORTPACKS_SIGNING_KEY"] = key
    points = json.loads(place.run("doctor", "--release", "--json").stdout)["points"]
    (found,) = (one for one in points if one["name"] == "signing")
    assert found["state"] == state
    assert "PRIVATE" not in str(points)


def test_immutable_releases_are_asked_of_github(stall: WheelShop, github: GitHubDouble) -> None:
    """With a token that may not write nothing more is asked."""
    github.immutable = False
    assert points(stall)["immutable"][0] == "open"
    github.admin = False
    assert points(stall)["immutable"][0] == "unknown"
    assert github.writes() == []
    github.push = False
    github.requests.clear()
    assert [points(stall)[name][0] for name in ("token", "immutable")] == ["open", "unknown"]
    assert {seen.path for seen in github.requests} == {f"/repos/{REPOSITORY}"}


def test_what_publish_would_refuse_of_dist_is_named(stall: WheelShop) -> None:
    (cpu,) = stall.dist.glob("ortpacks-cpu-*.tar.zst")
    cpu.unlink()
    state, _, do = points(stall)["dist"]
    assert (state, "R003 " in do, "R015 cpu" in do) == ("open", True, True)


def test_the_tag_is_compared_with_the_packages_else_with_the_base(stall: WheelShop) -> None:
    assert points(stall, tag="gpu-libs-v1.21.0")["tag"][0] == "open"
    assert points(stall, tag="v1..2")["tag"][0] == "open"
    for path in stall.dist.iterdir():
        path.unlink()
    assert points(stall, "assembled", "gpu-libs-v1.21.0-3")["tag"][0] == "set"
    assert points(stall, "nvidia", "gpu-libs-v1.21.0-3")["tag"][0] == "open"


def test_the_verb_ends_with_6_and_a_document_for_programs(copied: Place) -> None:
    said = copied.run("doctor", "--release", "--json", "--base", "assembled")
    document = json.loads(said.stdout)
    schema("doctor-release").validate(document)
    found = {one["name"]: one["state"] for one in document["points"]}
    assert (said.returncode, found["pins"], found["dist"], found["token"]) == (6, "set", "open", "open")
    assert said.stderr.startswith("error: ")
    shown = copied.run("doctor", "--release", "--tag", "gpu-libs-v1.21.0")
    assert (shown.returncode, "gpu-libs-v1.21.0" in shown.stdout) == (6, True)
    assert "Add --release" in copied.fails(2, "doctor", "--tag", "v1")
