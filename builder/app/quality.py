"""test: lint, types, import contracts, workflows, then pytest with the tiers that this machine can run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from builder.app.survey import tiers
from builder.app.workshop import Workshop
from builder.errors import CommandError

_GATES = (
    ("ruff", "check", "--quiet", "."),
    ("ruff", "format", "--quiet", "--check", "."),
    ("mypy", "--no-error-summary"),
    ("lint-imports", "--no-logo"),
)
_WORKFLOWS = ".github/workflows/*.yml"
_ZIZMOR = ("zizmor", "--offline", "--no-progress", "--quiet", "--strict-collection", "--min-severity=low")
_ACTIONLINT = ("actionlint", "-no-color", "-shellcheck=", "-pyflakes=")
"""Without what it would run where it finds it: the answer is the same on every machine."""

_SIDE_BY_SIDE = ("--numprocesses=2", "--dist=loadgroup")
"""Tests that share the engine run one after another (``tests/conftest.py``), beside the others."""


def test(shop: Workshop, *, fast: bool, only: str | None) -> None:
    """Run everything; the last lines are pytest's. Raises ``CommandError`` with the first gate that fails."""
    for gate in () if only else (*_GATES, *_workflow_gates(shop)):
        with shop.reporter.step(" ".join(gate)):
            shop.runner.run(gate, cwd=shop.root)
    argv = [sys.executable, "-m", "pytest", *_selection(shop, fast=fast, only=only)]
    done = shop.runner.run(argv, cwd=shop.root, on_line=shop.console.show, check=False)
    if done.code != 0:
        raise CommandError(f"pytest exited with {done.code}", argv=argv, code=done.code)


def _workflow_gates(shop: Workshop) -> Iterator[tuple[str, ...]]:
    """Two linters. actionlint is no Python package that pip could pin by its bytes, so it may be missing."""
    files = sorted(str(path.relative_to(shop.root)) for path in shop.root.glob(_WORKFLOWS))
    yield (*_ZIZMOR, *files)
    if shutil.which("actionlint", path=shop.env["PATH"]):
        yield (*_ACTIONLINT, *files)
    else:
        shop.reporter.warn("gate actionlint does not run: it is not on PATH (github.com/rhysd/actionlint)")


def _selection(shop: Workshop, *, fast: bool, only: str | None) -> Iterator[str]:
    if only:
        yield f"-k={only}"
    else:
        yield from _SIDE_BY_SIDE
    if not fast:
        yield from tiers(shop)
