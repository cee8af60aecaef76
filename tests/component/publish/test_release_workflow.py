"""Tests of the release workflow's scripts, run as a runner would, and of publishing before and
after signing."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from builder.contents.provenance import statement
from builder.publish.prepare import PublishOptions
from tests.doubles.release import FILES, name_of, write_release
from tests.support.factories.publishing import Desk
from tests.support.factories.releases import TEXTS, append_sum

ASKED = {"BASE": "redist", "PROFILE": "full", "VARIANTS": ""}
LEGS = '{"include": [{"variant": "legacy", "sm": ["50"]}]}'


def script(root: Path, job: str, step: int) -> str:
    """Return the script of a job's step; negative indices count from the end."""
    jobs = yaml.safe_load((root / ".github/workflows/release.yml").read_text())["jobs"]
    found = jobs[job]["steps"][step]["run"]
    assert isinstance(found, str)
    return found


def run(text: str, folder: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a step's script as a runner does: ``bash -e``."""
    given = {"PATH": "/usr/bin:/bin", "RUNNER_TEMP": str(folder), **(env or {})}
    shell = ["bash", "-e", "-c", text]
    return subprocess.run(shell, cwd=folder, env=given, capture_output=True, text=True, check=False)


def sums(folder: Path, *names: str) -> str:
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Return ``dist`` as publishing finds it; a stand-in for ``./run`` logs its calls in ``ran``."""
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "ortpacks-legacy.tar.zst").write_text("a package")
    (folder / "index.json").write_text("{}")
    (folder / "SHA256SUMS").write_text(sums(folder, "index.json", "ortpacks-legacy.tar.zst"))
    (tmp_path / "bundle.jsonl").write_text("signed")
    stand_in(tmp_path, 'echo "$*" >> ran')
    return folder


def stand_in(folder: Path, text: str) -> None:
    (folder / "run").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "run").chmod(0o755)


def test_a_release_with_an_open_revision_ends_before_anything_is_built(root: Path, tmp_path: Path) -> None:
    text = script(root, "pins", -1)
    stand_in(tmp_path, 'echo "$*" >> ran; exit 6')
    told = run(text, tmp_path, {"BASE": "redist"})
    assert (told.returncode, (tmp_path / "ran").read_text()) == (1, "lock --check redist\n")
    assert "::error file=inputs.lock::" in told.stdout
    assert "'./run lock --missing'" in told.stdout
    stand_in(tmp_path, "exit 0")
    assert run(text, tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("variants", "chosen"), [("", ""), ("legacy cpu", " --variant legacy --variant cpu")]
)
def test_the_matrix_is_what_run_says(root: Path, tmp_path: Path, variants: str, chosen: str) -> None:
    says = {"": "legacy auto", " --json": LEGS, " --by arch --base nvidia --json": "[50]"}
    says = {f"matrix{chosen}{rest}": answer for rest, answer in says.items()}
    answers = "".join(f"""'{asked}') echo '{answer}' ;; """ for asked, answer in says.items())
    stand_in(tmp_path, f'case "$*" in {answers}*) exit 1 ;; esac')
    env = {"GITHUB_OUTPUT": "out", "BASE": "nvidia", "VARIANTS": variants}
    done = run(script(root, "matrix", -1), tmp_path, env)
    assert (done.returncode, done.stdout) == (0, "legacy auto\n")
    assert (tmp_path / "out").read_text() == f"legs={LEGS}\narchitectures=[50]\n"


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (3, 0), (5, 5)])
def test_an_architecture_that_needs_no_compiling_is_no_failure(
    root: Path, tmp_path: Path, status: int, ends: int
) -> None:
    """Exit code 3 means that the official wheel serves the variant."""
    stand_in(tmp_path, f'echo "$*" >ran; exit {status}')
    done = run(script(root, "compile", -2), tmp_path, {"VARIANT": "latest", "ARCH": "90", **ASKED})
    assert done.returncode == ends
    ran = (tmp_path / "ran").read_text()
    assert ran == "compile --variant latest --arch 90 --profile full --base redist --into store\n"


def numbered(root: Path, text: str, job: str = "build") -> int:
    """Return the number of the step of a job that has ``text`` in its script."""
    jobs = yaml.safe_load((root / ".github/workflows/release.yml").read_text())["jobs"]
    (found,) = (number for number, step in enumerate(jobs[job]["steps"]) if text in str(step.get("run")))
    return found


@pytest.mark.parametrize(
    ("profile", "status", "said"),
    [("full", 0, ""), ("full", 124, "::error::time is up"), ("full", 5, ""), ("lean", 0, "")],
)
def test_a_build_takes_what_was_compiled_before_and_says_when_its_time_is_up(
    root: Path, tmp_path: Path, profile: str, status: int, said: str
) -> None:
    """A smaller profile, which ``--release`` would refuse, was asked for."""
    for name in ("ahead", "before"):
        (tmp_path / "stores" / name).mkdir(parents=True)
        (tmp_path / "stores" / name / name).touch()
    stand_in(tmp_path, f'echo "$*" >ran; exit {status}')
    build = script(root, "build", numbered(root, "./run build"))
    done = run(build, tmp_path, {"VARIANT": "latest", **ASKED, "PROFILE": profile})
    assert (done.returncode, done.stdout.partition(":  ")[0].startswith(said)) == (status, True)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["ahead", "before"]
    assert (tmp_path / "ran").read_text() == (
        f"build --variant latest --profile {profile} --base redist {'--release ' * (profile == 'full')}"
        "--compile-cache store\n"
    )


def test_what_one_job_alone_has_compiled_is_taken_too(root: Path, tmp_path: Path) -> None:
    """A pattern that one artifact matches gives it no folder of its own (actions/download-artifact#419)."""
    for name in ("ab/first", "cd/second"):
        (tmp_path / "stores" / name).parent.mkdir(parents=True)
        (tmp_path / "stores" / name).touch()
    stand_in(tmp_path, "exit 0")
    build = script(root, "build", numbered(root, "./run build"))
    assert run(build, tmp_path, {"VARIANT": "latest", "BASE": "redist"}).returncode == 0
    store = tmp_path / "store"
    found = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
    assert found == ["ab/first", "cd/second"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="runners have jq, this machine has not")
def test_what_is_attested_of_an_archive_is_its_own_provenance_and_sbom(root: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    write_release(dist, files={**FILES, **TEXTS}, layouts=("full", "thin"), forms=(".tar.zst", ".tar.gz"))
    names = [
        f"{name_of('legacy')}.tar.zst",
        *(f"{name_of('legacy', layout='thin')}.tar.{z}" for z in ("zst", "gz")),
    ]
    for name, kind in zip(names, ("full.tar.zst", "thin.tar.zst", "thin.tar.gz"), strict=True):
        whole = hashlib.sha256((dist / name).read_bytes()).hexdigest()
        layout, form = kind.split(".", 1)
        said = {"buildDefinition": {"externalParameters": {"layout": layout, "form": f".{form}"}}}
        subjects = {name: whole}
        (dist / f"{name}.provenance.json").write_text(json.dumps(statement(subjects, "", said)))
    done = run(script(root, "attest", numbered(root, "predicate.json", "attest")), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for name, kind in zip(names, ("full.tar.zst", "thin.tar.zst", "thin.tar.gz"), strict=True):
        made = json.loads((dist / f"{name}.provenance.json").read_text())
        about = tmp_path / "said" / kind
        assert json.loads((about / "predicate.json").read_text()) == made["predicate"]
        lines = [f"{one['digest']['sha256']}  {one['name']}" for one in made["subject"]]
        assert (about / "subjects").read_text().splitlines() == lines
        assert (about / "sbom.cdx.json").read_bytes() == TEXTS["sbom.cdx.json"]


def test_a_matrix_that_cannot_be_made_builds_nothing(root: Path, tmp_path: Path) -> None:
    stand_in(tmp_path, '[ "$*" = matrix ]')
    assert run(script(root, "matrix", -1), tmp_path, {"GITHUB_OUTPUT": "out"}).returncode == 1
    assert not (tmp_path / "out").exists()


def test_the_packages_of_all_jobs_lie_in_one_folder_with_one_list(root: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    for name in ("legacy", "modern"):
        folder = tmp_path / "built" / f"package-{name}"
        folder.mkdir(parents=True)
        (folder / f"ortpacks-{name}.tar.zst").write_text(name)
        (folder / "SHA256SUMS").write_text(sums(folder, f"ortpacks-{name}.tar.zst"))
    gather = script(root, "publish", 2)
    assert run(gather, tmp_path).returncode == 0
    assert len((tmp_path / "dist/SHA256SUMS").read_text().splitlines()) == 2
    damaged = tmp_path / "built/package-legacy/ortpacks-legacy.tar.zst"
    damaged.write_text("cut")
    (tmp_path / "dist/ortpacks-legacy.tar.zst").unlink()
    assert run(gather, tmp_path).returncode != 0


def test_the_only_package_of_a_fork_is_gathered_too(root: Path, tmp_path: Path) -> None:
    """One artifact alone has no folder of its own (actions/download-artifact#419)."""
    (tmp_path / "dist").mkdir()
    built = tmp_path / "built"
    built.mkdir()
    (built / "ortpacks-legacy.tar.zst").write_text("legacy")
    (built / "SHA256SUMS").write_text(sums(built, "ortpacks-legacy.tar.zst"))
    done = run(script(root, "publish", 2), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "dist/ortpacks-legacy.tar.zst").read_text() == "legacy"


def test_the_attestation_is_listed_beside_what_it_is_of(root: Path, tmp_path: Path, dist: Path) -> None:
    before = (dist / "SHA256SUMS").read_text()
    done = run(script(root, "publish", -2), tmp_path, {"BUNDLE": str(tmp_path / "bundle.jsonl")})
    assert (done.returncode, done.stderr) == (0, "")
    assert (dist / "SHA256SUMS").read_text() == before + sums(dist, "attestation.sigstore.json")
    assert (tmp_path / "attested").read_text() == before


def test_a_rebuilt_release_is_compared_without_what_is_made_anew_each_time(
    root: Path, tmp_path: Path, dist: Path
) -> None:
    """GitHub's attestation is in a release's sums, and nobody else can make it."""
    run(script(root, "publish", -2), tmp_path, {"BUNDLE": str(tmp_path / "bundle.jsonl")})
    shutil.copytree(dist, dist / "rebuild", ignore=shutil.ignore_patterns("*.sigstore.json"))
    page = (root / "docs/provenance.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("curl -fsSL URL/SHA256SUMS")]
    done = run(line.replace("curl -fsSL URL/SHA256SUMS", "cat dist/SHA256SUMS"), tmp_path)
    assert (done.returncode, done.stdout) == (0, "index.json: OK\nortpacks-legacy.tar.zst: OK\n")


@pytest.mark.parametrize("allow", [" ", "--allow-lean --allow-partial"])
def test_only_a_complete_draft_with_the_bytes_that_were_signed_is_made_public(
    root: Path, tmp_path: Path, dist: Path, allow: str
) -> None:
    (tmp_path / "attested").write_text((dist / "SHA256SUMS").read_text())
    env = {"TAG": "t1", "ALLOW": allow}
    assert run(script(root, "publish", -1), tmp_path, env).returncode == 0
    words = " ".join(["publish --tag t1", *allow.split()])
    assert (tmp_path / "ran").read_text() == f"{words} --draft\n{words}\n"


def test_bytes_other_than_those_that_were_signed_stay_a_draft(root: Path, tmp_path: Path, dist: Path) -> None:
    (tmp_path / "attested").write_text((dist / "SHA256SUMS").read_text())
    stand_in(tmp_path, 'echo "$*" >> ran; echo "{ }" > dist/index.json')
    done = run(script(root, "publish", -1), tmp_path, {"TAG": "t1"})
    assert (done.returncode, "index.json: FAILED" in done.stdout) == (1, True)
    assert (tmp_path / "ran").read_text() == "publish --tag t1 --draft\n"


def test_a_dry_run_makes_all_that_is_signed_and_publishing_changes_none_of_it(desk: Desk) -> None:
    listed = desk.dist / "SHA256SUMS"
    desk.publish(PublishOptions(dry_run=True))
    signed = listed.read_text()
    assert {"index.json", "ortpacks.pyz"} <= set(signed.split())
    attestation = desk.dist / "attestation.sigstore.json"
    attestation.write_text("signed")
    append_sum(desk.dist, attestation)
    desk.publish(PublishOptions(draft=True))
    done = desk.publish()
    assert set(listed.read_text().splitlines()) - set(signed.splitlines()) == {
        sums(desk.dist, attestation.name).strip()
    }
    assert attestation.name in {row.name for row in done.rows}
