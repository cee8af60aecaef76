"""Tests of the update from a lean package in format 3 to today's full one, of the way back, and
of repetition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doubles.machine import Machine
from tests.doubles.release import Build, name_of, write_release

LEAN, LEAN_OF_BEFORE, FULL = Build("lean"), Build("lean", format=3), Build("full")

LEAN_NAME, FULL_NAME = name_of("modern", build=LEAN), name_of("modern", "1.24.0", build=FULL)

FAILS = "Transformer models fail at ONNX Runtime's default optimisation level"


@pytest.fixture
def before(tmp_path: Path) -> str:
    """Return the index of a release in format 3 with a package of profile lean."""
    return str(write_release(tmp_path / "before", builds=(LEAN_OF_BEFORE,)))


@pytest.fixture
def today(tmp_path: Path) -> str:
    return str(write_release(tmp_path / "today", version="1.24.0", builds=(FULL,)))


@pytest.fixture
def both(tmp_path: Path) -> str:
    """Return the index of a release with a lean package before a full one."""
    return str(write_release(tmp_path / "both", builds=(LEAN, FULL)))


def in_use(machine: Machine) -> str:
    return (machine.prefix / "current").resolve().name.rpartition("-")[0]


def test_a_lean_package_of_before_installs_and_says_what_fails(machine: Machine, before: str) -> None:
    assert machine.run("install", "--index", before) == 0, machine.err
    assert in_use(machine) == LEAN_NAME
    assert f"{LEAN_NAME}: {FAILS}" in machine.err
    assert machine.run("verify") == 0, machine.err
    assert machine.run("recommend", "--index", before) == 0
    assert FAILS in machine.out
    said = machine.answer("recommend", "--index", before)
    assert len(said["notes"]) == 1


def test_it_gives_way_to_the_full_one_with_a_sentence_why(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    said = machine.answer("install", "--index", before)
    assert (said["installed"]["fresh"], said["installed"]["upgrade"]) == (False, None)
    assert machine.run("install", "--index", today) == 0, machine.err
    assert in_use(machine) == FULL_NAME
    assert f"{LEAN_NAME} is replaced by {FULL_NAME}. {FAILS}" in machine.out
    assert "ORT_ENABLE_BASIC" not in machine.out


def test_install_again_does_nothing_and_rollback_goes_back(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    first = machine.answer("install", "--index", today)
    again = machine.answer("install", "--index", today)
    assert first["installed"]["upgrade"].startswith(f"{LEAN_NAME} is replaced")
    assert (again["installed"]["fresh"], again["installed"]["upgrade"]) == (False, None)
    assert machine.run("rollback") == 0, machine.err
    assert in_use(machine) == LEAN_NAME
    back = machine.answer("install", "--index", today)
    assert (back["installed"]["fresh"], in_use(machine)) == (False, FULL_NAME)
    assert "is replaced" in back["installed"]["upgrade"]


def test_of_both_the_full_one_is_taken_and_the_lean_one_by_its_name(machine: Machine, both: str) -> None:
    full = name_of("modern", build=FULL)
    said = machine.answer("select", "--index", both, "--variant", "modern")
    assert (said["package"]["name"], said["package"]["cannot_run"]) == (full, [])
    assert machine.run("install", "--index", both) == 0, machine.err
    assert in_use(machine) == full
    assert f"not {LEAN_NAME}: it has no CUDA kernels for operators that {full} runs" in machine.err
    said = machine.answer("install", "--index", both, "--variant", LEAN_NAME)
    assert in_use(machine) == LEAN_NAME
    assert said["installed"]["upgrade"] is None
    assert said["package"]["cannot_run"] == [
        {"domain": "com.microsoft", "operators": ["Attention", "BiasGelu"]}
    ]
    assert FAILS in said["notes"][0]


def test_by_its_name_for_an_image_that_is_built_elsewhere(machine: Machine, both: str) -> None:
    """The lean package is smaller, as real ones are."""
    lean = name_of("legacy", build=LEAN)
    index = json.loads(Path(both).read_text())
    for package in index["packages"]:
        package["size"] += 1000 if not package["onnxruntime"]["cannot_run"] else 0
    Path(both).write_text(json.dumps(index))
    said = machine.answer("select", "--index", both, "--variant", "legacy")
    assert said["package"]["name"] == name_of("legacy", build=FULL)
    said = machine.answer("select", "--index", both, "--variant", lean)
    assert "as asked with --variant" in str(said["summary"])
    assert FAILS in said["notes"][0]
    assert machine.run("select", "--index", both, "--variant", f"{lean}x") == 2
    assert "A package's name is taken too" in machine.err


def test_a_lean_manifest_that_is_damaged_is_no_obstacle(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    (machine.prefix / "current" / "manifest.json").write_text("{")
    said = machine.answer("install", "--index", today)
    assert (said["installed"]["upgrade"], in_use(machine)) == (None, FULL_NAME)
