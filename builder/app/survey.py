"""inspect and doctor: look at files and at this machine, change nothing."""

from __future__ import annotations

import json
import platform
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from builder.app.workshop import Workshop
from builder.core.address import without_userinfo
from builder.core.naming import ARCHIVE_SUFFIX
from builder.errors import BuilderError, CheckFailedError, NothingToDoError, ValidationError
from builder.stages.inspect import Inspected, document, inspect, table


def look_inside(shop: Workshop, path: Path) -> tuple[Inspected, ...]:
    """What the libraries of a file, folder, wheel or package hold."""
    with ExitStack() as stack:
        libraries = [(name, file) for name, file in _libraries(shop, path, stack) if ".so" in name]
        if not libraries:
            raise NothingToDoError(
                f"No shared library in {path}. Name a .so, a folder, a wheel or a package."
            )
        return inspect(libraries)


def told(found: Sequence[Inspected], *, as_json: bool) -> str:
    """A table for people or JSON for programs."""
    return json.dumps(document(found), indent=2) if as_json else table(found)


def require_read(found: Sequence[Inspected]) -> None:
    """Raise ``CheckFailedError`` when a library could not be read: no script may take that for a pass."""
    unread = [f"{item.name}: {item.problem}" for item in found if item.problem]
    if unread:
        raise CheckFailedError(f"{len(unread)} of {len(found)} libraries cannot be read", unread)


def _libraries(shop: Workshop, path: Path, stack: ExitStack) -> list[tuple[str, Path]]:
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.is_symlink())
        return [(str(file.relative_to(path)), file) for file in files]
    if not path.is_file():
        raise ValidationError(f"{path} is neither a file nor a folder.")
    if path.name.endswith((ARCHIVE_SUFFIX, ".whl")):
        folder = stack.enter_context(
            shop.archive(shop.reporter).scratch(shop.dist / f"inspect-{path.name}", 2 * path.stat().st_size)
        )
        _unpack(shop, path, folder)
        return _libraries(shop, folder, stack)
    return [(path.name, path)]


def _unpack(shop: Workshop, path: Path, folder: Path) -> None:
    if path.name.endswith(ARCHIVE_SUFFIX):
        shop.archive(shop.reporter).extract(path, folder)
        return
    folder.mkdir()
    try:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if ".so" in name])
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValidationError(f"{path} is no wheel: {error}. It may be cut short; fetch it again.") from error


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
