"""Tests of ./run test (the gates, then pytest with the tiers that this machine can run) and of
doctor's probes."""

import os
import sys
from pathlib import Path

import pytest

from builder.build.verbs import maintenance as quality
from builder.errors import CommandError, VariantsFailedError
from builder.io.process import Completed
from tests.support.factories.workplace import wired
from tests.support.fakes.ports import FakeEngine, FakeRunner, NoEngine, reported
from tests.support.messages import Told

GATES = 6
"""Number of gates where actionlint is not."""


class Bench:
    """A wiring whose engine, programs and PATH belong to the test."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.runner = FakeRunner()
        env = {"PATH": str(folder), "ORTPACKS_CACHE": str(folder / "cache")}
        self.shop = wired(root, folder / "dist", env, engine=FakeEngine(), runner=self.runner)

    def lines(self) -> list[str]:
        return reported(self.shop)

    def no_engine(self) -> None:
        self.shop.__dict__["engine"] = NoEngine()

    def ran(self) -> list[str]:
        """Return the commands that ran: the gates, which run side by side, sorted."""
        ran = [" ".join(call).replace(sys.executable, "python") for call in self.runner.calls]
        return [*sorted(ran[:GATES]), *ran[GATES:]]


def install(folder: Path, program: str) -> None:
    """Put a program that does nothing on the bench's PATH."""
    (folder / program).write_text("#!/bin/sh\n")
    (folder / program).chmod(0o755)


@pytest.fixture
def bench(root: Path, tmp_path: Path) -> Bench:
    return Bench(root, tmp_path)


@pytest.mark.parametrize("cores", [None, 2, 64])
def test_all_tests_are_one_run_after_the_gates(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, told: Told, cores: int | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    quality.test(bench.shop, fast=False, everything=cores == 2, only="" if cores else None)
    told("\n".join([*bench.ran(), *bench.lines()]))


def test_fast_asks_for_no_tier_and_actionlint_is_a_gate_where_it_is(
    bench: Bench, tmp_path: Path, told: Told
) -> None:
    bench.no_engine()
    install(tmp_path, "actionlint")
    quality.test(bench.shop, fast=True, everything=False, only=None)
    told("\n".join(sorted(bench.ran())))
    assert bench.lines() == []


def test_only_is_pytest_alone(bench: Bench) -> None:
    quality.test(bench.shop, fast=True, everything=False, only="stamp or plan")
    assert bench.ran() == ["python -m pytest -k=stamp or plan"]


def test_all_gates_that_fail_are_told_and_no_test_is_run(bench: Bench) -> None:
    bench.runner.answers = {
        "mypy": CommandError("mypy exited with 1", tail=["x.py:1: error"]),
        "pylint": CommandError("pylint exited with 8", tail=["y.py:1:0: R0801"]),
    }
    with pytest.raises(VariantsFailedError, match=r"(?s)x\.py:1: error.*y\.py:1:0: R0801") as caught:
        quality.test(bench.shop, fast=True, everything=False, only=None)
    assert caught.value.exit_code == CommandError.exit_code
    assert len(bench.ran()) == GATES


def test_red_tests_are_an_error_with_pytests_code(bench: Bench) -> None:
    bench.runner.answers = {sys.executable: Completed(code=1, stdout="", stderr="")}
    with pytest.raises(CommandError, match="pytest exited with 1") as caught:
        quality.test(bench.shop, fast=True, everything=False, only=None)
    assert caught.value.exit_code == 5


def test_a_tier_that_cannot_run_says_why(bench: Bench) -> None:
    bench.no_engine()
    assert list(quality.tiers(bench.shop)) == []
    assert bench.lines() == [
        "! tiers integration and images do not run: No Docker engine answers.",
        "! tier gpu does not run: no nvidia-smi on this machine",
        "! tier referees does not run: no Node.js with npm on this machine",
    ]


def test_tiers_run_where_a_driver_and_node_are(bench: Bench, tmp_path: Path) -> None:
    for program in ("nvidia-smi", "node", "npm"):
        install(tmp_path, program)
    assert list(quality.tiers(bench.shop)) == ["--integration", "--images", "--gpu", "--referees"]
    assert bench.lines() == []


@pytest.mark.parametrize(("user", "program"), [(0, "mmdebstrap"), (1000, "mmdebstrap"), (0, "debootstrap")])
def test_doctor_asks_for_what_makes_root_file_systems(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told, user: int, program: str
) -> None:
    install(tmp_path, program)
    monkeypatch.setattr("os.geteuid", lambda: user)
    quality.doctor(bench.shop, as_json=False)
    told("\n".join(line for line in bench.lines() if line.split()[1] in {"engine", "mmdebstrap"}))
    assert bench.lines()[-1].startswith(f"✓ dist           {tmp_path / 'dist'}, ")


@pytest.mark.parametrize("cache", ["x" * 300, "file"], ids=["long", "file"])
def test_doctor_goes_on_where_a_folder_is_none(bench: Bench, tmp_path: Path, told: Told, cache: str) -> None:
    """Defect: a file passed as the folder because its parent is writable."""
    (tmp_path / "file").touch()
    bench.shop.env = {**bench.shop.env, "ORTPACKS_CACHE": str(tmp_path / cache)}
    assert not quality.doctor(bench.shop, as_json=False)
    told(bench.lines()[-2])
    assert bench.lines()[-1].startswith("✓ dist ")
