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
@pytest.mark.parametrize("only", [None, ""])
def test_all_tests_are_one_run_after_the_gates(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cores: int | None, processes: int, only: str | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    quality.test(bench.shop, fast=False, everything=False, only=only)
    everything = f"--numprocesses={processes} --dist=loadfile --no-loadscope-reorder --integration --images"
    assert set(bench.ran()[: len(GATES)]) == set(GATES)
    assert bench.ran()[len(GATES) :] == [f"{PYTEST} {everything}"]


def test_all_adds_the_tests_that_take_many_minutes(bench: Bench) -> None:
    quality.test(bench.shop, fast=False, everything=True, only=None)
    assert bench.ran()[-1].endswith(" --integration --images --thorough")


def test_fast_asks_for_no_tier(bench: Bench) -> None:
    bench.use(NoEngine())
    quality.test(bench.shop, fast=True, everything=False, only=None)
    assert sorted(bench.ran()) == sorted([*GATES, FAST])
    assert not [line for line in bench.reporter.lines if "tier" in line]


def test_actionlint_is_a_gate_where_it_is(bench: Bench, tmp_path: Path) -> None:
    install(tmp_path, "actionlint")
    quality.test(bench.shop, fast=True, everything=False, only=None)
    assert f"actionlint -no-color -shellcheck= -pyflakes= {WORKFLOWS}" in bench.ran()
    assert not [line for line in bench.reporter.lines if line.startswith("!")]


def test_where_actionlint_is_not_it_is_said(bench: Bench) -> None:
    quality.test(bench.shop, fast=True, everything=False, only=None)
    (said,) = [line for line in bench.reporter.lines if line.startswith("!")]
    assert said.startswith("! gate actionlint does not run: it is not on PATH")


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


def test_doctor_tells_the_engine_in_numbers(bench: Bench) -> None:
    quality.doctor(bench.shop, as_json=False)
    assert (
        "✓ engine         Docker 26.1.5, buildx 0.13.1, overlay2, 2 CPUs, 26 GB memory"
        in bench.reporter.lines
    )


def test_doctor_fails_on_one_thing_missing_and_goes_on(bench: Bench, tmp_path: Path) -> None:
    assert not quality.doctor(bench.shop, as_json=False)
    assert (
        "✗ mmdebstrap     mmdebstrap is not on PATH: --base assembled needs it (apt-get install mmdebstrap)."
        in bench.reporter.lines
    )
    assert bench.reporter.lines[-1].startswith(f"✓ dist           {tmp_path / 'dist'}, ")


def test_doctor_goes_on_where_a_folder_cannot_be_looked_at(bench: Bench, tmp_path: Path) -> None:
    install(tmp_path, "mmdebstrap")
    cache = tmp_path / ("x" * 300)
    bench.shop.env = {**bench.shop.env, "ORTPACKS_CACHE": str(cache)}
    assert not quality.doctor(bench.shop, as_json=False)
    why = "the path is longer than the file system takes. Choose a shorter one."
    assert bench.reporter.lines[-2] == f"✗ cache          {cache}: {why}"
    assert bench.reporter.lines[-1].startswith("✓ dist ")


def test_without_root_doctor_asks_for_newuidmap_too(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "mmdebstrap")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert not quality.doctor(bench.shop, as_json=False)
    lacks = "newuidmap is not on PATH: --base assembled needs it (apt-get install uidmap)."
    assert f"✗ mmdebstrap     {lacks}" in bench.reporter.lines
    monkeypatch.setattr("os.geteuid", lambda: 0)
    quality.doctor(bench.shop, as_json=False)
    assert any(line.startswith("✓ mmdebstrap ") for line in bench.reporter.lines)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (0, "✓ mmdebstrap     {folder}/debootstrap takes its place; ./run image needs mmdebstrap itself"),
        (
            1000,
            "✗ mmdebstrap     mmdebstrap is not on PATH: --base assembled needs it (apt-get install {it}).",
        ),
    ],
)
def test_for_root_debootstrap_is_enough(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, said: str
) -> None:
    """Defect: doctor failed for root without mmdebstrap, although debootstrap serves base assembled."""
    install(tmp_path, "debootstrap")
    monkeypatch.setattr("os.geteuid", lambda: user)
    quality.doctor(bench.shop, as_json=False)
    assert said.format(folder=tmp_path, it="mmdebstrap") in bench.reporter.lines


def test_doctor_takes_no_file_for_a_folder(bench: Bench, tmp_path: Path) -> None:
    """Defect: a file passed as the folder because its parent is writable."""
    (tmp_path / "cache").write_text("")
    assert not quality.doctor(bench.shop, as_json=False)
    (said,) = (line for line in bench.reporter.lines if line.startswith("✗ cache "))
    assert said.endswith(
        f"{tmp_path / 'cache'} is no folder. ORTPACKS_CACHE names another cache, --dist another one for "
        "results."
    )
