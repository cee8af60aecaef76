"""The compile caches that flags and environment name, and the work of the verb cache, which shows all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import BuilderError, ConfigError, DiskError, TransferError, ValidationError, os_error
from builder.files.disk import absolute, is_file, is_folder, is_writable
from builder.package.build_record import SUFFIX, CompileRecord, loads
from builder.ports import CompileCache, CompileCaches, EngineResource


def named_caches(
    wiring: Wiring, shared: str | None, ahead: str | None = None, into: str | None = None
) -> CompileCaches:
    """Return the compile caches of the flags, the environment and the project, which are not asked yet.

    Raises ``ValidationError``, and ``DiskError`` for a folder of ``--into`` that may not be written.
    """
    if ahead is not None and "://" not in ahead and not is_folder(absolute(Path(ahead))):
        raise ValidationError(f"--from {ahead!r} is no folder.", advice="./run compile --into makes one.")
    if into is not None and "://" not in into:
        folder = absolute(Path(into))
        if not is_file(folder) and not is_writable(folder):
            raise DiskError(f"--into {into} may not be written", advice="Name another folder, or allow it.")
    return CompileCaches(
        shared=named_cache(wiring, shared),
        ahead=None if ahead is None else _opened(wiring, ahead, "--from"),
        into=None if into is None else _opened(wiring, into, "--into"),
    )


def answering(wiring: Wiring, caches: CompileCaches) -> CompileCaches:
    """Return the caches, all of which answer.

    A shared cache that does not answer is left out with a warning, since the build works without it. Raises
    ``ValidationError`` for a cache that refuses access, and ``TransferError`` if the cache of ``--from`` or
    ``--into`` does not answer.
    """
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
    return _opened(wiring, address, where) if address else None


def _opened(wiring: Wiring, address: str, where: str) -> CompileCache:
    from builder.adapters.shared_cache.compile_cache import compile_cache  # noqa: PLC0415 - slow: Redis, S3, HTTP

    return compile_cache(address, where, wiring.env)


def show_caches(wiring: Wiring, shared: CompileCache | None, document: Console | None = None) -> None:
    """Print the compile caches of the engine, the shared one, and their share in the builds of dist.

    ``document``: the console for the JSON form; ``None`` for text.
    Raises ``ToolMissingError`` without an engine. After all else is shown, raises what ``CompileCache.usage``
    does, and ``ConfigError`` for damaged records of builds.
    """
    wiring.engine.facts()
    show = partial(_show_document, document) if document else partial(_show_lines, wiring.console)
    mounts = sorted(
        (held for held in wiring.engine.resources() if held.kind == "cache"), key=lambda mount: mount.name
    )
    builds, problems = _recorded_builds(wiring.dist)
    try:
        usage = (shared.name, *shared.usage()) if shared else None
    except BuilderError:
        show(mounts, None, builds)
        for problem in problems:
            wiring.reporter.warn(problem)
        raise
    show(mounts, usage, builds)
    if problems:
        raise ConfigError(problems)


def _recorded_builds(dist: Path) -> tuple[list[tuple[str, CompileRecord]], list[str]]:
    """Return the packages of ``dist`` with what compiling them cost, and what is wrong with other records."""
    builds: list[tuple[str, CompileRecord]] = []
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


def _show_document(
    console: Console,
    mounts: Sequence[EngineResource],
    shared: tuple[str, int, int] | None,
    builds: Sequence[tuple[str, CompileRecord]],
) -> None:
    document = {
        "engine": [{"name": one.name, "bytes": one.size, "last_used": one.used} for one in mounts],
        "shared": dict(zip(("address", "objects", "bytes"), shared, strict=True)) if shared else None,
        "builds": [
            {"package": name, "units": done.compilations, "cache_hits": done.cache_hits}
            for name, done in builds
        ],
    }
    console.show(json.dumps(document))


def _show_lines(
    console: Console,
    mounts: Sequence[EngineResource],
    shared: tuple[str, int, int] | None,
    builds: Sequence[tuple[str, CompileRecord]],
) -> None:
    for one in mounts:
        console.show(f"{one.size / 1e6:>9,.1f} MB  {one.name}, used {one.used or 'never'}")
    total = sum(one.size for one in mounts) / 1e6
    console.show(f"{total:>9,.1f} MB  on the engine; ./run clean --cache drops all of it")
    if shared:
        name, objects, size = shared
        drops = "its server drops" if "://" in name else "nothing here drops"
        console.show(f"{size / 1e6:>9,.1f} MB  {name}: {objects:,} objects; {drops} them")
    for name, done in builds:
        console.show(f"{name}: {done.cache_hits:,} of {done.compilations:,} units from ccache")
