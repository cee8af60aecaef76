"""Tests of ./run test (the gates, then pytest with the tiers that this machine can run) and of
doctor's probes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from builder.build.verbs import maintenance as quality
from builder.errors import CommandError, VariantsFailedError
from builder.io.process import Completed
from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner, NoEngine

GATES = ["ruff check --quiet .", "ruff format --quiet --check .", "mypy --no-error-summary"]

GATES += ["lint-imports --no-logo", "pylint --jobs=0 --score=no builder"]

WORKFLOWS = " ".join(f".github/workflows/{name}.yml" for name in ("canary", "check", "pins", "release"))

GATES += [
    f"zizmor --offline --no-progress --quiet --strict-collection --min-severity=low action.yml {WORKFLOWS}"
]

PYTEST = f"{sys.executable} -m pytest"

USE_CASES = "tests/component/compile tests/component/contents tests/component/package"

FAST = f"{PYTEST} --numprocesses=auto tests/unit tests/golden {USE_CASES}"


class Bench:
    """A wiring whose engine, programs and PATH belong to the test."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.reporter = FakeReporter()
        self.runner = FakeRunner()
        self.shop = Wiring(root, dist=folder / "dist", reporter=self.reporter)
        self.shop.env = {"PATH": str(folder), "ORTPACKS_CACHE": str(folder / "cache")}
        self.use(FakeEngine())
        self.shop.__dict__["runner"] = self.runner

    def use(self, engine: FakeEngine) -> None:
        self.shop.__dict__["engine"] = engine

    def ran(self) -> list[str]:
        return [" ".join(call) for call in self.runner.calls]


def install(folder: Path, program: str) -> None:
    """Put a program that does nothing on the bench's PATH."""
    (folder / program).write_text("#!/bin/sh\n")
    (folder / program).chmod(0o755)


@pytest.fixture
def bench(root: Path, tmp_path: Path) -> Bench:
    return Bench(root, tmp_path)


@pytest.mark.parametrize(("cores", "processes"), [(None, 3), (2, 4), (64, 6)])
@pytest.mark.parametrize("everything", [False, True])
def test_all_tests_are_one_run_after_the_gates(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cores: int | None, processes: int, everything: bool
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    quality.test(bench.shop, fast=False, everything=everything, only="" if cores else None)
    flags = f"--numprocesses={processes} --dist=loadfile --no-loadscope-reorder --integration --images"
    assert set(bench.ran()[: len(GATES)]) == set(GATES)
    assert bench.ran()[len(GATES) :] == [f"{PYTEST} {flags}{' --thorough' if everything else ''}"]


def test_fast_asks_for_no_tier(bench: Bench) -> None:
    bench.use(NoEngine())
    quality.test(bench.shop, fast=True, everything=False, only=None)
    assert sorted(bench.ran()) == sorted([*GATES, FAST])
    (said,) = bench.reporter.lines
    assert said.startswith("! gate actionlint does not run: it is not on PATH")


def test_actionlint_is_a_gate_where_it_is(bench: Bench, tmp_path: Path) -> None:
    install(tmp_path, "actionlint")
    quality.test(bench.shop, fast=True, everything=False, only=None)
    assert f"actionlint -no-color -shellcheck= -pyflakes= {WORKFLOWS}" in bench.ran()
    assert not [line for line in bench.reporter.lines if line.startswith("!")]


def test_only_is_pytest_alone(bench: Bench) -> None:
    quality.test(bench.shop, fast=True, everything=False, only="stamp or plan")
    assert bench.ran() == [f"{PYTEST} -k=stamp or plan"]


def test_all_gates_that_fail_are_told_and_no_test_is_run(bench: Bench) -> None:
    bench.runner.answers = {
        "mypy": CommandError("mypy exited with 1", tail=["x.py:1: error"]),
        "pylint": CommandError("pylint exited with 8", tail=["y.py:1:0: R0801"]),
    }
    with pytest.raises(VariantsFailedError, match=r"(?s)x\.py:1: error.*y\.py:1:0: R0801") as caught:
        quality.test(bench.shop, fast=True, everything=False, only=None)
    assert caught.value.exit_code == CommandError.exit_code
    assert sorted(bench.ran()) == sorted(GATES)


def test_red_tests_are_an_error_with_pytests_code(bench: Bench) -> None:
    bench.runner.answers = {PYTEST: Completed(code=1, stdout="", stderr="")}
    with pytest.raises(CommandError, match="pytest exited with 1") as caught:
        quality.test(bench.shop, fast=True, everything=False, only=None)
    assert caught.value.exit_code == 5


def test_a_tier_that_cannot_run_says_why(bench: Bench) -> None:
    bench.use(NoEngine())
    assert list(quality.tiers(bench.shop)) == []
    assert bench.reporter.lines == [
        "! tiers integration and images do not run: No Docker engine answers.",
        "! tier gpu does not run: no nvidia-smi on this machine",
        "! tier referees does not run: no Node.js with npm on this machine",
    ]


def test_tiers_run_where_a_driver_and_node_are(bench: Bench, tmp_path: Path) -> None:
    for program in ("nvidia-smi", "node", "npm"):
        install(tmp_path, program)
    assert list(quality.tiers(bench.shop)) == ["--integration", "--images", "--gpu", "--referees"]
    assert bench.reporter.lines == []


def test_doctor_fails_on_one_thing_missing_and_goes_on(bench: Bench, tmp_path: Path) -> None:
    assert not quality.doctor(bench.shop, as_json=False)
    engine = "✓ engine         Docker 26.1.5, buildx 0.13.1, overlay2, 2 CPUs, 26 GB memory"
    lacks = "mmdebstrap is not on PATH: --base assembled needs it (apt-get install mmdebstrap)."
    assert {engine, f"✗ mmdebstrap     {lacks}"} <= {*bench.reporter.lines}
    assert bench.reporter.lines[-1].startswith(f"✓ dist           {tmp_path / 'dist'}, ")


@pytest.mark.parametrize(
    ("user", "program", "said"),
    [
        (0, "mmdebstrap", "✓ mmdebstrap     {0}/mmdebstrap"),
        (1000, "mmdebstrap", "✗ mmdebstrap     newuidmap is not on PATH: {1} (apt-get install uidmap)."),
        (0, "debootstrap", "✗ mmdebstrap     {2} is not on PATH: {1} (apt-get install {2})."),
    ],
)
def test_doctor_asks_for_what_makes_root_file_systems(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, program: str, said: str
) -> None:
    install(tmp_path, program)
    monkeypatch.setattr("os.geteuid", lambda: user)
    quality.doctor(bench.shop, as_json=False)
    assert said.format(tmp_path, "--base assembled needs it", "mmdebstrap") in bench.reporter.lines


@pytest.mark.parametrize(
    ("cache", "why"),
    [
        ("x" * 300, "{}: the path is longer than the file system takes. Choose a shorter one."),
        ("file", "{} is no folder. ORTPACKS_CACHE names another cache, --dist another one for results."),
    ],
    ids=["long", "file"],
)
def test_doctor_goes_on_where_a_folder_is_none(bench: Bench, tmp_path: Path, cache: str, why: str) -> None:
    """Defect: a file passed as the folder because its parent is writable."""
    (tmp_path / "file").touch()
    bench.shop.env = {**bench.shop.env, "ORTPACKS_CACHE": str(tmp_path / cache)}
    assert not quality.doctor(bench.shop, as_json=False)
    assert bench.reporter.lines[-2] == f"✗ cache          {why.format(tmp_path / cache)}"
    assert bench.reporter.lines[-1].startswith("✓ dist ")
