"""The compile caches that flags and environment name. Each is asked whether it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builder.compile.compile_cache import CompileCache, CompileCaches, compile_cache
from builder.errors import DiskError, TransferError, ValidationError
from builder.files.disk import absolute, is_file, is_folder, is_writable
from builder.io.wiring import Wiring


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
    """Return the shared compile cache without asking it; ``None`` if none, or an empty text, is named.

    The flag ``--compile-cache`` goes before ``ORTPACKS_COMPILE_CACHE``, which goes before ``variants.yaml``.
    """
    if flag is not None:
        where, address = "--compile-cache", flag
    elif "ORTPACKS_COMPILE_CACHE" in wiring.env:
        where, address = "ORTPACKS_COMPILE_CACHE", wiring.env["ORTPACKS_COMPILE_CACHE"]
    else:
        where, address = "compile_cache of variants.yaml", wiring.project.compile_cache
    return compile_cache(address, where, wiring.env) if address else None
