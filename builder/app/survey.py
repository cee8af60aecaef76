"""doctor: look at this machine, change nothing."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from builder.app.workshop import Workshop
from builder.core.address import without_userinfo
from builder.errors import BuilderError, ValidationError


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
