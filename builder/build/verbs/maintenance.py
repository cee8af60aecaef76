"""The verbs for work on the project itself: test (gates, pytest) and doctor."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from builder.config.inputs import LOCK_MISSING, Lock
from builder.errors import (
    BuilderError,
    CommandError,
    DiskError,
    ValidationError,
    os_error,
)
from builder.files.disk import is_writable
from builder.formats.text import redacted
from builder.io.process import side_by_side
from builder.io.wiring import Wiring

_GATES = (
    ("ruff", "check", "--quiet", "."),
    ("ruff", "format", "--quiet", "--check", "."),
    ("mypy", "--no-error-summary"),
    ("lint-imports", "--no-logo"),
    ("pylint", "--jobs=0", "--score=no", "builder"),
)

_WORKFLOWS = ".github/workflows/*.yml"

_ACTION = "action.yml"

_ZIZMOR = ("zizmor", "--offline", "--no-progress", "--quiet", "--strict-collection", "--min-severity=low")

_ACTIONLINT = ("actionlint", "-no-color", "-shellcheck=", "-pyflakes=")
"""The command of actionlint, without shellcheck and pyflakes, so that every machine gives the same answer."""

_EVERYTHING = ("--dist=loadfile", "--no-loadscope-reorder")
"""Flags that run a module's tests in one process, in tests/conftest.py's order, since they share results."""

_MOST_CORES = 4
"""The number of cores beyond which no more processes are started: each would unpack packages to the disk."""

_USE_CASES = ("tests/component/compile", "tests/component/contents", "tests/component/package")

_FAST = ("--numprocesses=auto", "tests/unit", "tests/golden", *_USE_CASES)
"""Flags for the tests that take half a minute on two cores: pure modules, and use cases over fakes."""


def test(wiring: Wiring, *, fast: bool, everything: bool, only: str | None) -> None:
    """Run the gates side by side, then pytest.

    ``fast`` selects the tests that need a minute at most, ``everything`` adds those that take many; ``only``
    is pytest's ``-k`` for all tests; with it the gates are skipped. Raises ``VariantsFailedError`` if gates
    fail and ``CommandError`` if pytest does.
    """
    if not only:
        gates = (*_GATES, *_workflow_gates(wiring))
        side_by_side(
            {" ".join(gate): partial(_gate, wiring, gate) for gate in gates}, wiring.runner.interrupt
        )
    argv = [sys.executable, "-m", "pytest", *_flags(wiring, fast=fast, everything=everything, only=only)]
    env = {"PYTHONDONTWRITEBYTECODE": ""}  # else each process compiles every module again
    code = wiring.runner.run(argv, cwd=wiring.root, env=env, on_line=wiring.console.show, check=False).code
    if code != 0:
        raise CommandError(f"pytest exited with {code}: {' '.join(argv[1:])}", argv=argv, code=code)


def make_site(wiring: Wiring) -> Path:
    """Make the site of README and docs, with search, in ``dist/site``; return its first page.

    Raises ``CommandError`` where Sphinx warns of anything.
    """
    folder = wiring.dist / "site"
    with wiring.reporter.step("site"):
        strict = ("--quiet", "--fail-on-warning", "--keep-going")
        wiring.runner.run(["sphinx-build", *strict, "--conf-dir=docs", ".", str(folder)], cwd=wiring.root)
    return folder / "index.html"


def _gate(wiring: Wiring, gate: Sequence[str]) -> None:
    with wiring.console.prefixed(gate[0]).step(" ".join(gate)):
        wiring.runner.run(gate, cwd=wiring.root)


def _flags(wiring: Wiring, *, fast: bool, everything: bool, only: str | None) -> tuple[str, ...]:
    """Return the flags of pytest.

    There are two processes more than cores, since many tests wait for containers, engines and each other.
    """
    if fast:
        return (f"-k={only}",) if only else _FAST
    processes = f"--numprocesses={min(os.cpu_count() or 1, _MOST_CORES) + 2}"
    chosen = (f"-k={only}",) if only else (processes, *_EVERYTHING)
    return (*chosen, *tiers(wiring), *(("--thorough",) if everything or only else ()))


def _workflow_gates(wiring: Wiring) -> Iterator[tuple[str, ...]]:
    """Yield the commands of the linters of the workflows and of our action.

    actionlint, which is not a Python package, is left out with a warning if it is not installed.
    """
    files = sorted(str(path.relative_to(wiring.root)) for path in wiring.root.glob(_WORKFLOWS))
    yield (*_ZIZMOR, _ACTION, *files)
    if shutil.which("actionlint", path=wiring.env["PATH"]):
        yield (*_ACTIONLINT, *files)
    else:
        wiring.reporter.warn("gate actionlint does not run: it is not on PATH (github.com/rhysd/actionlint)")


def doctor(wiring: Wiring, *, as_json: bool) -> bool:
    """Report what a build needs and whether this machine has it; return whether it has all of it.

    The schema of the JSON form is ``docs/schemas/doctor.schema.json``.
    """
    probes = {
        "python": platform.python_version,
        "variants.yaml": lambda: f"{len(wiring.project.variants)} variants",
        "inputs.lock": lambda: _pins(wiring.lock),
        "engine": lambda: _engine(wiring),
        "mmdebstrap": lambda: _mmdebstrap(wiring.env["PATH"]),
        "mirror": lambda: redacted(", ".join(wiring.mirrors.find())),
        "cache": lambda: _space(wiring.cache),
        "dist": lambda: _space(wiring.dist),
    }
    prerequisites = []
    for name, probe in probes.items():
        prerequisite = _probe(name, probe)
        prerequisites.append(prerequisite)
        if not as_json:
            wiring.reporter.say(
                f"{'✓' if prerequisite.ok else '✗'} {prerequisite.name:<14} {prerequisite.message}"
            )
    if as_json:
        wiring.console.show(
            json.dumps(
                {"format": 1, "checks": [asdict(prerequisite) for prerequisite in prerequisites]}, indent=2
            )
        )
    return all(prerequisite.ok for prerequisite in prerequisites)


@dataclass(frozen=True, kw_only=True)
class Prerequisite:
    """One thing that a build needs, whether it is present, and a message on it."""

    name: str
    ok: bool
    message: str


def _pins(lock: Lock) -> str:
    open_ = [key for key, pin in lock.pins.items() if pin.is_open]
    pinned = f"{len(lock.pins) - len(open_)} inputs pinned"
    return f"{pinned}; unpinned: {', '.join(open_)}. {LOCK_MISSING}" if open_ else pinned


def _probe(name: str, probe: Callable[[], str]) -> Prerequisite:
    try:
        return Prerequisite(name=name, ok=True, message=probe())
    except (BuilderError, OSError) as error:
        said = os_error(error) if isinstance(error, OSError) else error
        return Prerequisite(name=name, ok=False, message=str(said))


def _engine(wiring: Wiring) -> str:
    facts = wiring.engine.facts()
    free = "" if facts.folder is None else f", {shutil.disk_usage(facts.folder).free / 1e9:,.0f} GB free"
    return (
        f"Docker {facts.version}, buildx {facts.buildx}, {facts.storage}, {facts.cpus} CPUs, "
        f"{facts.memory / 1e9:,.0f} GB memory{free}"
    )


def _mmdebstrap(path: str) -> str:
    is_root = os.geteuid() == 0
    packages = {"mmdebstrap": "mmdebstrap", **({} if is_root else {"newuidmap": "uidmap"})}
    for program, package in packages.items():
        if shutil.which(program, path=path) is None:
            raise ValidationError(
                f"{program} is not on PATH: --base assembled needs it (apt-get install {package})."
            )
    return str(shutil.which("mmdebstrap", path=path))


def _space(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise ValidationError(
            f"{existing} is no folder. ORTPACKS_CACHE names another cache, --dist another one for results."
        )
    if not is_writable(existing):
        raise DiskError(
            f"{existing} may not be written by this user. ORTPACKS_CACHE names another cache, --dist results."
        )
    return f"{folder}, {shutil.disk_usage(existing).free / 1e9:,.0f} GB free"


def tiers(wiring: Wiring) -> Iterator[str]:
    """Yield pytest's flags for the tiers that this machine can run."""
    try:
        wiring.engine.facts()
        yield "--integration"
        yield "--images"
    except BuilderError as error:
        wiring.reporter.warn(f"tiers integration and images do not run: {error}")
    if shutil.which("nvidia-smi", path=wiring.env["PATH"]):
        yield "--gpu"
    else:
        wiring.reporter.warn("tier gpu does not run: no nvidia-smi on this machine")
    if all(shutil.which(name, path=wiring.env["PATH"]) for name in ("node", "npm")):
        yield "--referees"
    else:
        wiring.reporter.warn("tier referees does not run: no Node.js with npm on this machine")
