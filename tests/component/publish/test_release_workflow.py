"""Tests of the release workflow's scripts, run as a runner would."""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT
from tests.support.factories.releases import append_sum

JOBS = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]

SCRIPTS: dict[str, str] = {
    step.get("name"): step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step
}
"""The scripts by the names of their steps."""

PINS, LEGS = "Refuse open pins now, not after hours of compiling (R009)", "What jobs there are"
COMPILE, BUILD = "Device code of one architecture", "The package, from what was compiled"
SAID, GATHER = "What is said of each archive", "Gather dist/"
ATTESTED, PUBLISH = "The attestation goes up too", "Publish"

ASKED = {"VARIANT": "latest", "ARCH": "90", "BASE": "redist", "PROFILE": "full", "TAG": "t1", "ALLOW": " "}


@dataclass(frozen=True)
class Runner:
    """A runner's folder with a stand-in for ``./run``, which logs its calls in ``ran``."""

    folder: Path

    def stand_in(self, text: str = "") -> None:
        (self.folder / "run").write_text(f'#!/bin/sh\necho "$*" >>ran\n{text}\n')
        (self.folder / "run").chmod(0o755)

    def step(self, name: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a step's script as a runner does: ``bash -e``."""
        return self.bash(SCRIPTS[name], **env)

    def bash(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "ran").unlink(missing_ok=True)
        given = {"PATH": "/usr/bin:/bin", "RUNNER_TEMP": str(self.folder), **ASKED, **env}
        shell = ["bash", "-e", "-c", text]
        return subprocess.run(shell, cwd=self.folder, env=given, capture_output=True, text=True, check=False)

    @property
    def ran(self) -> str:
        return (self.folder / "ran").read_text()

    def write(self, folder: str, *names: str) -> Path:
        """Write files of their names and SHA256SUMS into a folder below the runner's."""
        made = self.folder / folder
        made.mkdir(parents=True, exist_ok=True)
        for name in names:
            (made / name).write_text(name)
            append_sum(made, made / name)
        return made


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    made = Runner(tmp_path)
    made.stand_in()
    return made


@pytest.fixture
def dist(runner: Runner) -> Path:
    """Return ``dist`` as publishing finds it; its list of files was signed."""
    made = runner.write("dist", "index.json", "ortpacks-legacy.tar.zst")
    shutil.copy(made / "SHA256SUMS", runner.folder / "attested")
    (runner.folder / "bundle.jsonl").write_text("signed")
    return made


def test_a_release_with_an_open_revision_ends_before_anything_is_built(runner: Runner) -> None:
    assert runner.step(PINS).returncode == 0
    runner.stand_in("exit 6")
    told = runner.step(PINS)
    assert (told.returncode, runner.ran) == (1, "lock --check redist\n")
    assert "::error file=inputs.lock::" in told.stdout
    assert "'./run lock --missing'" in told.stdout


@pytest.mark.parametrize(
    ("variants", "chosen"), [("", ""), ("legacy cpu", " --variant legacy --variant cpu")]
)
def test_the_matrix_is_what_run_says_or_nothing_is_built(runner: Runner, variants: str, chosen: str) -> None:
    says = {"": "legacy auto", " --json": '{"include": []}', " --by arch --base redist --json": "[50]"}
    answers = "".join(f"""'matrix{chosen}{rest}') echo '{answer}' ;; """ for rest, answer in says.items())
    runner.stand_in(f'case "$*" in {answers}*) exit 1 ;; esac')
    done = runner.step(LEGS, GITHUB_OUTPUT="out", VARIANTS=variants)
    assert (done.returncode, done.stdout) == (0, "legacy auto\n")
    assert (runner.folder / "out").read_text() == 'legs={"include": []}\narchitectures=[50]\n'
    runner.stand_in(f'[ "$*" = "matrix{chosen}" ]')
    assert runner.step(LEGS, GITHUB_OUTPUT="none", VARIANTS=variants).returncode == 1
    assert not (runner.folder / "none").exists()


@pytest.mark.parametrize(
    ("step", "profile", "status", "ends", "said"),
    [
        *((COMPILE, "full", status, ends, "") for status, ends in ((0, 0), (3, 0), (5, 5))),
        *(
            (BUILD, profile, status, status, "")
            for profile, status in (("full", 0), ("full", 5), ("lean", 0))
        ),
        (BUILD, "full", 124, 124, "::error::time is up"),
    ],
)
def test_a_job_ends_as_run_does_unless_there_is_nothing_to_compile(
    runner: Runner, step: str, profile: str, status: int, ends: int, said: str
) -> None:
    """Exit code 3 means that the official wheel serves the variant, 124 that time is up."""
    runner.stand_in(f"exit {status}")
    done = runner.step(step, PROFILE=profile)
    assert (done.returncode, done.stdout.startswith(said)) == (ends, True)
    more = "--release " * (profile == "full")
    assert (
        runner.ran
        == {
            COMPILE: "compile --variant latest --arch 90 --profile full --base redist --into store\n",
            BUILD: f"build --variant latest --profile {profile} --base redist {more}--compile-cache store\n",
        }[step]
    )


@pytest.mark.parametrize("artifacts", [["ahead/", "before/"], [""]], ids=["two", "one"])
def test_a_build_takes_what_was_compiled_before(runner: Runner, artifacts: list[str]) -> None:
    """A pattern that one artifact matches gives it no folder of its own (actions/download-artifact#419)."""
    objects = {f"{number}b/object" for number, _ in enumerate([*artifacts, ""])}
    for artifact, name in zip([*artifacts, artifacts[0]], sorted(objects), strict=True):
        (runner.folder / "stores" / artifact / name).parent.mkdir(parents=True)
        (runner.folder / "stores" / artifact / name).touch()
    assert runner.step(BUILD).returncode == 0
    store = runner.folder / "store"
    assert {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()} == objects


@pytest.mark.parametrize("folders", [["built/legacy", "built/modern"], ["built"]], ids=["two", "one"])
def test_the_packages_of_all_jobs_lie_in_one_folder_with_one_list(runner: Runner, folders: list[str]) -> None:
    """The only package of a fork is gathered too: one artifact alone has no folder of its own."""
    (runner.folder / "dist").mkdir()
    for number, folder in enumerate(folders):
        runner.write(folder, f"ortpacks-{number}.tar.zst")
    done = runner.step(GATHER)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((runner.folder / "dist/SHA256SUMS").read_text().splitlines()) == len(folders)
    (runner.folder / "dist/ortpacks-0.tar.zst").rename(runner.folder / folders[0] / "ortpacks-0.tar.zst")
    (runner.folder / folders[0] / "ortpacks-0.tar.zst").write_text("cut")
    assert runner.step(GATHER).returncode != 0


def test_the_attestation_is_listed_and_left_out_of_a_rebuilds_comparison(runner: Runner, dist: Path) -> None:
    """Nobody else can make GitHub's attestation anew."""
    before = (dist / "SHA256SUMS").read_text()
    done = runner.step(ATTESTED, BUNDLE=str(runner.folder / "bundle.jsonl"))
    assert (done.returncode, done.stderr) == (0, "")
    digest = hashlib.sha256(b"signed").hexdigest()
    assert (dist / "SHA256SUMS").read_text() == f"{before}{digest}  attestation.sigstore.json\n"
    assert (runner.folder / "attested").read_text() == before
    shutil.copytree(dist, dist / "rebuild", ignore=shutil.ignore_patterns("*.sigstore.json"))
    page = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("curl -fsSL URL/SHA256SUMS")]
    done = runner.bash(line.replace("curl -fsSL URL/SHA256SUMS", "cat dist/SHA256SUMS"))
    assert (done.returncode, done.stdout) == (0, "index.json: OK\nortpacks-legacy.tar.zst: OK\n")


@pytest.mark.parametrize("allow", [" ", "--allow-lean --allow-partial"])
def test_only_a_draft_with_the_signed_bytes_is_made_public(runner: Runner, dist: Path, allow: str) -> None:
    assert runner.step(PUBLISH, ALLOW=allow).returncode == 0
    words = " ".join(["publish --tag t1", *allow.split()])
    assert runner.ran == f"{words} --draft\n{words}\n"
    runner.stand_in('echo "{ }" > dist/index.json')
    done = runner.step(PUBLISH, ALLOW=allow)
    assert (done.returncode, "index.json: FAILED" in done.stdout) == (1, True)
    assert runner.ran == f"{words} --draft\n"
