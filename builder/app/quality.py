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

_BESIDE = ("--numprocesses=2", "-m=not engine")
_ALONE = ("-m=engine",)
"""Tests that share the engine run one after another, when the others are through."""


def test(shop: Workshop, *, fast: bool, only: str | None) -> None:
    """Run everything; the last lines are pytest's. Raises ``CommandError`` with the first gate that fails."""
    for gate in () if only else (*_GATES, *_workflow_gates(shop)):
        with shop.reporter.step(" ".join(gate)):
            shop.runner.run(gate, cwd=shop.root)
    runs = [[sys.executable, "-m", "pytest", *flags] for flags in _selections(shop, fast=fast, only=only)]
    codes = [shop.runner.run(run, cwd=shop.root, on_line=shop.console.show, check=False).code for run in runs]
    for run, code in zip(runs, codes, strict=True):
        if code != 0:
            raise CommandError(f"pytest exited with {code}: {' '.join(run[1:])}", argv=run, code=code)


def _workflow_gates(shop: Workshop) -> Iterator[tuple[str, ...]]:
    """Two linters. actionlint is no Python package that pip could pin by its bytes, so it may be missing."""
    files = sorted(str(path.relative_to(shop.root)) for path in shop.root.glob(_WORKFLOWS))
    yield (*_ZIZMOR, *files)
    if shutil.which("actionlint", path=shop.env["PATH"]):
        yield (*_ACTIONLINT, *files)
    else:
        shop.reporter.warn("gate actionlint does not run: it is not on PATH (github.com/rhysd/actionlint)")


def _selections(shop: Workshop, *, fast: bool, only: str | None) -> Iterator[tuple[str, ...]]:
    """Pytest's flags, run by run."""
    asked = () if fast else tuple(tiers(shop))
    if only:
        yield (f"-k={only}", *asked)
    elif fast:
        yield _BESIDE[:1]
    else:
        yield (*_BESIDE, *asked)
        yield (*_ALONE, *asked)
