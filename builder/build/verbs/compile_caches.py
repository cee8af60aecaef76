"""The compile caches that flags and environment name, and the work of the verb cache, which shows all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from builder.compile.compile_cache import CompileCache, CompileCaches, compile_cache
from builder.console import Console
from builder.contents.build_record import SUFFIX, CompileRecord, loads
from builder.errors import BuilderError, ConfigError, DiskError, TransferError, ValidationError, os_error
from builder.files.disk import absolute, is_file, is_folder, is_writable
from builder.io.docker.engine import EngineResource
from builder.io.wiring import Wiring

_Build = tuple[str, CompileRecord]
"""A package's name, and what compiling it cost."""


def open_caches(
    wiring: Wiring, shared: str | None = None, ahead: str | None = None, into: str | None = None
) -> CompileCaches:
    """Return the compile caches of the flags, the environment and the project, all of which answer.

    A shared cache that does not answer is left out with a warning, since the build works without it. Raises
    ``ValidationError``, also for a cache that refuses access, ``TransferError`` if the cache of ``--from`` or
    ``--into`` does not answer, and ``DiskError`` for a folder of ``--into`` that may not be written.
    """
    if ahead is not None and "://" not in ahead and not is_folder(absolute(Path(ahead))):
        raise ValidationError(f"--from {ahead!r} is no folder.", advice="./run compile --into makes one.")
    if into is not None and "://" not in into:
        folder = absolute(Path(into))
        if not is_file(folder) and not is_writable(folder):
            raise DiskError(f"--into {into} may not be written", advice="Name another folder, or allow it.")
    caches = CompileCaches(
        shared=named_cache(wiring, shared),
        ahead=None if ahead is None else compile_cache(ahead, "--from", wiring.env),
        into=None if into is None else compile_cache(into, "--into", wiring.env),
    )
    for needed in filter(None, (caches.ahead, caches.into)):
        needed.require()
    try:
        if caches.shared:
            caches.shared.require()
    except TransferError as error:
        wiring.reporter.warn(error.warning("The build goes on without it."))
        return replace(caches, shared=None)
    return caches


def named_cache(wiring: Wiring, flag: str | None) -> CompileCache | None:
    """Return the shared compile cache, which is not asked yet; ``None`` if none is named, or an empty text.

    The flag ``--compile-cache`` goes before ``ORTPACKS_COMPILE_CACHE``, which goes before ``variants.yaml``.
    """
    if flag is not None:
        where, address = "--compile-cache", flag
    elif "ORTPACKS_COMPILE_CACHE" in wiring.env:
        where, address = "ORTPACKS_COMPILE_CACHE", wiring.env["ORTPACKS_COMPILE_CACHE"]
    else:
        where, address = "compile_cache of variants.yaml", wiring.project.compile_cache
    return compile_cache(address, where, wiring.env) if address else None


def show_caches(wiring: Wiring, shared: CompileCache | None, document: Console | None = None) -> None:
    """Print the compile caches of the engine, the shared one, and their share in the builds of dist.

    ``document``: the console for the JSON form; ``None`` for text.
    Raises ``ToolMissingError`` without an engine. After all else is shown, raises what ``CompileCache.usage``
    does, and ``ConfigError`` for damaged records of builds.
    """
    wiring.engine.facts()
    mounts = sorted(
        (held for held in wiring.engine.resources() if held.kind == "cache"), key=lambda mount: mount.name
    )
    builds, problems = _recorded_builds(wiring.dist)
    usage: tuple[str, int, int] | None = None
    failed: BuilderError | None = None
    try:
        usage = (shared.name, *shared.usage()) if shared else None
    except BuilderError as error:
        failed = error
    if document:
        document.show(json.dumps(_document(mounts, usage, builds)))
    else:
        wiring.console.show("\n".join(_lines(mounts, usage, builds)))
    if failed:
        for problem in problems:
            wiring.reporter.warn(problem)
        raise failed
    if problems:
        raise ConfigError(problems)


def _recorded_builds(dist: Path) -> tuple[list[_Build], list[str]]:
    """Return the packages of ``dist`` with what compiling them cost, and what is wrong with other records."""
    builds: list[_Build] = []
    problems: list[str] = []
    for file in sorted(dist.glob(f"*{SUFFIX}")):
        try:
            record = loads(file.read_bytes(), file.name)
        except ConfigError as error:
            problems += error.problems
        except OSError as error:
            problems.append(os_error(error).headline)
        else:
            builds += [(record.package, record.compile)] if record.compile else []
    return builds, problems


def _document(
    mounts: Sequence[EngineResource], shared: tuple[str, int, int] | None, builds: Sequence[_Build]
) -> Mapping[str, object]:
    return {
        "engine": [{"name": one.name, "bytes": one.size, "last_used": one.used} for one in mounts],
        "shared": dict(zip(("address", "objects", "bytes"), shared, strict=True)) if shared else None,
        "builds": [
            {"package": name, "units": done.compilations, "cache_hits": done.cache_hits}
            for name, done in builds
        ],
    }


def _lines(
    mounts: Sequence[EngineResource], shared: tuple[str, int, int] | None, builds: Sequence[_Build]
) -> Iterator[str]:
    for one in mounts:
        yield f"{one.size / 1e6:>9,.1f} MB  {one.name}, used {one.used or 'never'}"
    total = sum(one.size for one in mounts) / 1e6
    yield f"{total:>9,.1f} MB  on the engine; ./run clean --cache drops all of it"
    if shared:
        name, objects, size = shared
        drops = "its server drops" if "://" in name else "nothing here drops"
        yield f"{size / 1e6:>9,.1f} MB  {name}: {objects:,} objects; {drops} them"
    for name, done in builds:
        yield f"{name}: {done.cache_hits:,} of {done.compilations:,} units from ccache"
