"""compile: lay out the build context, run BuildKit, bring the libraries back.

The context is made of hard links into the input cache, so it costs no space; BuildKit's cache mounts keep
ccache and the Ninja tree, so a killed build goes on from there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from builder.core.inputs import Input
from builder.core.ports import Engine, EngineFacts, ImageBuild, Reporter, Rootfs, Store
from builder.core.rendered import Rendered
from builder.core.variant import BuildPlan
from builder.core.workplace import Workplace
from builder.errors import BuilderError, DiskError

_NINJA = re.compile(r"\[(\d+)/(\d+)\]")
_MEMORY_PER_JOB = 4 << 30
"""Bytes a CUDA unit may need: nvcc peaks at 0.95 GB on lean units, at 4 GB on flash attention."""


def lay_out(
    plan: BuildPlan, rendered: Rendered, place: Workplace, *, store: Store, rootfs: Rootfs, templates: Path
) -> None:
    """Write Dockerfiles and context. The folder is made afresh, so nothing stale gets into a build.

    A new ``build.log`` begins with it.
    """
    shutil.rmtree(place.context, ignore_errors=True)
    place.context.mkdir(parents=True)
    place.log.unlink(missing_ok=True)
    place.dockerfile.write_text(rendered.dockerfile, encoding="utf-8")
    place.runtime_dockerfile.write_text(rendered.runtime_dockerfile, encoding="utf-8")
    _link(templates / "smoke.c", place.context / "smoke.c")
    for folder, items in (("debs", rendered.debs), ("sources", rendered.sources)):
        _link_all(items, place.context / folder, store)
    if plan.base == "assembled":
        base = plan.project.bases.assembled
        _link(rootfs.tar(base.suite, base.packages), place.context / "rootfs-build.tar")
        _link(rootfs.tar(base.suite, ()), place.context / "rootfs-bare.tar")


def _link_all(items: tuple[Input, ...], folder: Path, store: Store) -> None:
    folder.mkdir()
    for item in items:
        file = store.fetch(item)
        _link(file, folder / file.name)


def _link(source: Path, target: Path) -> None:
    """A hard link where the cache lies on the same file system, else a copy. Raises ``DiskError``."""
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    needed, free = source.stat().st_size, shutil.disk_usage(target.parent).free
    try:
        shutil.copy2(source, target)
    except OSError as error:
        raise DiskError(
            f"{target} cannot be written: {error.strerror}. It needs {needed:,} bytes, {free:,} were free. "
            "Free space there and run the same command again."
        ) from error


def export(
    target: str,
    dest: Path,
    rendered: Rendered,
    place: Workplace,
    *,
    engine: Engine,
    store: Store,
    reporter: Reporter,
    builder: str | None = None,
) -> None:
    """Build a stage and bring its files to ``dest``, replacing the last ones only when all went well.

    Raises ``CommandError`` with the last 30 log lines; the whole log stays in ``build.log``.
    """
    for leftover in dest.parent.glob(f"{dest.name}.part-*"):
        shutil.rmtree(leftover)
    fresh = dest.with_name(f"{dest.name}.part-{os.getpid()}")
    request = ImageBuild(
        dockerfile=place.dockerfile,
        context=place.context,
        target=target,
        contexts={name: store.unpack(wheel) for name, wheel in rendered.contexts.items()},
        output=fresh,
        args={"JOBS": str(jobs(engine.facts()))},
        builder=builder,
        network=rendered.network,
    )
    try:
        _build(request, place.log, engine, reporter)
        shutil.rmtree(dest, ignore_errors=True)
        fresh.rename(dest)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _build(request: ImageBuild, log: Path, engine: Engine, reporter: Reporter) -> None:
    try:
        with log.open("a", buffering=1, encoding="utf-8") as file:
            engine.build(request, _follow(file.write, reporter))
    except BuilderError:
        reporter.warn(f"the whole log: {log}")
        raise


def jobs(facts: EngineFacts) -> int:
    """Compiler jobs that neither idle a core nor run out of memory."""
    return max(1, min(facts.cpus, facts.memory // _MEMORY_PER_JOB))


def _follow(write: Callable[[str], object], reporter: Reporter) -> Callable[[str], None]:
    """Everything into the log; to the user one line per tenth of the units."""
    told = -1

    def line(text: str) -> None:
        nonlocal told
        write(text + "\n")
        match = _NINJA.search(text)
        if match is None:
            return
        done, total = int(match[1]), int(match[2])
        if total < 2:  # noqa: PLR2004 - Ninja's own "[0/1] Re-running CMake"
            return
        tenth = done * 10 // total
        if tenth != told:
            told = tenth
            reporter.say(f"{done} of {total} units")

    return line
