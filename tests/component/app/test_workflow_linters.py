"""Tests of the gates on workflows: both pass for ours, and each rejects the mistakes it exists for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.app import quality
from builder.builds.wiring import Wiring
from builder.errors import CommandError
from tests.support.fakes.ports import FakeReporter, FakeRunner

UNPINNED = (
    "uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
    "uses: actions/upload-artifact@v7",
)

FOREIGN = (
    "on:\n  push:\n    branches: [main]\n  pull_request:\n",
    "on:\n  push:\n    branches: [main]\n  pull_request_target:\n",
)

INJECTED = ("run: bash .ci/run", "run: echo '${{ github.event.pull_request.title }}'")

SPELT = ("runs-on: ubuntu-24.04\n    timeout-minutes: 60", "runs-on: ubuntu-24.04\n    timeout-minuts: 60")

UNKNOWN = ("needs.matrix.outputs.legs", "needs.matrix.outputs.jobs")


def gates(root: Path) -> dict[str, list[str]]:
    """Return the gates' command lines in ``./run test``, by program."""
    shop = Wiring(root, reporter=FakeReporter())
    shop.__dict__["runner"] = runner = FakeRunner()
    quality.test(shop, fast=True, only=None)
    return {call[0]: call for call in runner.calls}


def objection(root: Path, folder: Path, program: str, change: tuple[str, str] | None) -> str | None:
    """Return the gate's message on our workflows after ``change``, or ``None`` when the gate passes."""
    workflows = folder / ".github/workflows"
    shutil.copytree(root / ".github/workflows", workflows)
    action = Path(shutil.copy(root / "action.yml", folder))
    files = (action, *sorted(workflows.iterdir()))
    changed = [_change(file, *change) for file in files] if change else [True]
    assert any(changed), "the change is not one to ours"
    argv = gates(root).get(program) or pytest.skip(f"no {program} on PATH")
    try:
        Wiring(root).runner.run(argv, cwd=folder)
    except CommandError as error:
        return "\n".join(error.tail)
    return None


def _change(file: Path, old: str, new: str) -> bool:
    text = file.read_text()
    file.write_text(text.replace(old, new))
    return old in text


@pytest.mark.parametrize("program", ["zizmor", "actionlint"])
def test_our_workflows_pass(root: Path, tmp_path: Path, program: str) -> None:
    assert objection(root, tmp_path, program, None) is None


@pytest.mark.parametrize(
    ("change", "audit"),
    [
        (UNPINNED, "error[unpinned-uses]"),
        (FOREIGN, "error[dangerous-triggers]"),
        (INJECTED, "error[template-injection]"),
        (('<<< "$INPUT_PATH"', '<<< "${{ inputs.path }}"'), "error[template-injection]"),
        (("        with:\n          persist-credentials: false\n", ""), "warning[artipacked]"),
    ],
)
def test_zizmor_objects_to_what_gives_others_our_rights(
    root: Path, tmp_path: Path, change: tuple[str, str], audit: str
) -> None:
    assert audit in (objection(root, tmp_path, "zizmor", change) or "")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (INJECTED, '"github.event.pull_request.title" is potentially untrusted'),
        (SPELT, 'unexpected key "timeout-minuts"'),
        (UNKNOWN, 'property "jobs" is not defined'),
        (("needs: build\n", "needs: biuld\n"), 'needs job "biuld" which does not exist'),
    ],
)
def test_actionlint_objects_to_what_github_would_not_take(
    root: Path, tmp_path: Path, change: tuple[str, str], rule: str
) -> None:
    assert rule in (objection(root, tmp_path, "actionlint", change) or "")


def test_one_workflow_that_cannot_be_read_fails_beside_one_that_can(root: Path, tmp_path: Path) -> None:
    said = objection(root, tmp_path, "zizmor", ("  pins:\n", "  pins: [\n"))
    assert said is not None
