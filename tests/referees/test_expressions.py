"""Comparison of the tests' evaluator of GitHub's expressions with GitHub's own, on those of our workflows."""

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.referees.install import HERE, Referees
from tests.support import ran
from tests.support.workflows.expressions import evaluate

pytestmark = pytest.mark.referees

_INSIDE = re.compile(r"\$\{\{(.+?)\}\}")

_INPUTS: tuple[dict[str, object], ...] = (
    {},
    {"base": "redist", "profile": "lean", "variants": "legacy", "dry_run": True, "tag": "v1", "bases": "[1]"},
    {"base": "nvidia", "profile": "full", "variants": "", "dry_run": False, "tag": "v1", "wheel": "latest"},
)
_REST = {
    "github": {"ref_name": "gpu-libs-v1", "token": "t"},
    "matrix": {"variant": "legacy", "sm": ["50", "52"], "runner": "ubuntu-24.04", "base": "redist"},
    "needs": {
        "pins": {"result": "success"},
        "matrix": {"result": "success", "outputs": {"legs": '{"include": [{}]}', "architectures": "[]"}},
        "build": {"result": "failure"},
    },
    "steps": {"legs": {"outputs": {}}, "attest": {"outputs": {"bundle-path": "/tmp/b"}}},
    "secrets": {},
    "vars": {"DOCKERHUB_USERNAME": "me"},
    "env": {"DRY_RUN": "true"},
}
_STATUS: dict[str, Callable[..., object]] = {
    "success": lambda: True,
    "failure": lambda: False,
    "always": lambda: True,
    "cancelled": lambda: False,
    "hashFiles": lambda _: "",
}
_HARDER = (
    "'A' == 'a'",
    "null == 0",
    "true == '1'",
    "'' == false",
    "'x' == 0",
    "1 == 1.0",
    "!'' && (null || 'b') || 'c'",
    "matrix.sm == matrix.sm",
    "matrix.SM[1]",
    "matrix.sm[7]",
    "inputs.none.further",
    "false || true && 'yes'",
)


def expressions(part: object, key: object = "") -> Iterator[str]:
    """Yield the expressions in a part of a workflow, which stands under ``key``."""
    if isinstance(part, str):
        yield from _INSIDE.findall(part) or ([part] if key == "if" else [])
    elif isinstance(part, dict):
        yield from itertools.chain.from_iterable(expressions(one, name) for name, one in part.items())
    elif isinstance(part, list):
        yield from itertools.chain.from_iterable(map(expressions, part))


def test_our_evaluator_gives_githubs_values(referees: Referees, root: Path) -> None:
    workflows = [yaml.safe_load(file.read_text()) for file in (root / ".github/workflows").glob("*.yml")]
    found = [*expressions(workflows), *_HARDER]
    assert len(found) > 80
    asked = [(one, {**_REST, "inputs": inputs}) for one, inputs in itertools.product(found, _INPUTS)]
    program = referees.folder / "node_modules/@actions/expressions/dist/index.js"
    done = ran(
        [referees.node, HERE / "expressions.mjs"],
        given=json.dumps(asked),
        env={**os.environ, "EXPRESSIONS": str(program)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(value) for value in json.loads(done.stdout)]
    ours = [evaluate(expression, contexts, _STATUS) for expression, contexts in asked]
    assert [(one[0], value) for one, value in zip(asked, ours, strict=True)] == [
        (one[0], value) for one, value in zip(asked, theirs, strict=True)
    ]
