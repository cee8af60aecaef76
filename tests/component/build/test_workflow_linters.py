"""Tests of the gate zizmor: it rejects the mistakes in workflows that it exists for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.build.verbs import maintenance as quality
from builder.errors import CommandError
from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter, FakeRunner


def gate(root: Path) -> list[str]:
    """Return zizmor's command line in ``./run test``."""
    shop = Wiring(root, reporter=FakeReporter())
    shop.__dict__["runner"] = runner = FakeRunner()
    quality.test(shop, fast=True, everything=False, only=None)
    (command,) = (call for call in runner.calls if call[0] == "zizmor")
    return command


def objection(root: Path, folder: Path, change: tuple[str, str]) -> str:
    """Return zizmor's message on our workflows after ``change``; empty when it passes."""
    workflows = folder / ".github/workflows"
    shutil.copytree(root / ".github/workflows", workflows)
    action = Path(shutil.copy(root / "action.yml", folder))
    files = (action, *sorted(workflows.iterdir()))
    changed = [_change(file, *change) for file in files]
    assert any(changed), "the change is not one to ours"
    try:
        Wiring(root).runner.run(gate(root), cwd=folder)
    except CommandError as error:
        return "\n".join(error.tail)
    return ""


def _change(file: Path, old: str, new: str) -> bool:
    text = file.read_text()
    file.write_text(text.replace(old, new))
    return old in text


@pytest.mark.parametrize(
    ("change", "audit"),
    [
        (("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0", "v7"), "unpinned-uses"),
        (("run: bash .ci/run", "run: echo '${{ github.event.pull_request.title }}'"), "template-injection"),
        (('<<< "$INPUT_PATH"', '<<< "${{ inputs.path }}"'), "template-injection"),
        (("        with:\n          persist-credentials: false\n", ""), "artipacked"),
        (("  pins:\n", "  pins: [\n"), ""),
    ],
    ids=["unpinned", "injected", "injected into the action", "credentials", "unreadable"],
)
def test_zizmor_objects_to_what_gives_others_our_rights(
    root: Path, tmp_path: Path, change: tuple[str, str], audit: str
) -> None:
    said = objection(root, tmp_path, change)
    assert said
    assert audit in said
