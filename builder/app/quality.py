"""test: lint, types, import contracts, then pytest with the tiers that this machine can run."""

from __future__ import annotations

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


def test(shop: Workshop, *, fast: bool, only: str | None) -> None:
    """Run everything; the last lines are pytest's. Raises ``CommandError`` with the first gate that fails."""
    for gate in () if only else _GATES:
        with shop.reporter.step(" ".join(gate)):
            shop.runner.run(gate, cwd=shop.root)
    argv = [sys.executable, "-m", "pytest", *_selection(shop, fast=fast, only=only)]
    done = shop.runner.run(argv, cwd=shop.root, on_line=shop.console.show, check=False)
    if done.code != 0:
        raise CommandError(f"pytest exited with {done.code}", argv=argv, code=done.code)


def _selection(shop: Workshop, *, fast: bool, only: str | None) -> Iterator[str]:
    if only:
        yield f"-k={only}"
    if not fast:
        yield from tiers(shop)
