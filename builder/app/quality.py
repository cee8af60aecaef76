"""test: lint, types, import contracts, workflows, then pytest with the tiers that this machine can run.

doctor: look at this machine, change nothing.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from builder.builds.workshop import Workshop
from builder.errors import BuilderError, CommandError, ValidationError
from builder.formats.addresses import without_userinfo

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


def doctor(shop: Workshop) -> bool:
    """Say what is here and what is missing for a build; whether everything is."""
    probes = {
        "python": platform.python_version,
        "variants.yaml": lambda: f"{len(shop.project.variants)} variants",
        "inputs.lock": lambda: f"{len(shop.lock.pins)} inputs pinned",
        "engine": lambda: _engine(shop),
        "mmdebstrap": lambda: shutil.which("mmdebstrap", path=shop.env["PATH"]) or _absent("mmdebstrap"),
        "mirror": lambda: without_userinfo(", ".join(shop.mirrors.find())),
        "cache": lambda: _space(shop.cache),
        "dist": lambda: _space(shop.dist),
    }
    answers = [_probe(shop, name, probe) for name, probe in probes.items()]
    return all(answers)


def _probe(shop: Workshop, name: str, probe: Callable[[], str]) -> bool:
    try:
        shop.reporter.say(f"✓ {name:<14} {probe()}")
    except BuilderError as error:
        shop.reporter.say(f"✗ {name:<14} {error}")
        return False
    return True


def _engine(shop: Workshop) -> str:
    facts = shop.engine.facts()
    free = "" if facts.disk_free is None else f", {facts.disk_free / 1e9:,.0f} GB free"
    return (
        f"Docker {facts.version}, buildx {facts.buildx}, {facts.storage}, {facts.cpus} CPUs, "
        f"{facts.memory / 1e9:,.0f} GB memory{free}"
    )


def _absent(program: str) -> str:
    raise ValidationError(f"{program} is not on PATH: --base assembled needs it (apt-get install {program}).")


def _space(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{folder}, {shutil.disk_usage(existing).free / 1e9:,.0f} GB free"


def tiers(shop: Workshop) -> Iterator[str]:
    """Pytest's flags for the tiers that this machine can run."""
    try:
        shop.engine.facts()
        yield "--integration"
        yield "--images"
    except BuilderError as error:
        shop.reporter.warn(f"tiers integration and images do not run: {error}")
    if shutil.which("nvidia-smi", path=shop.env["PATH"]):
        yield "--gpu"
    else:
        shop.reporter.warn("tier gpu does not run: no nvidia-smi on this machine")
    if all(shutil.which(name, path=shop.env["PATH"]) for name in ("node", "npm")):
        yield "--referees"
    else:
        shop.reporter.warn("tier referees does not run: no Node.js with npm on this machine")
