"""The step compile writes the build context and runs BuildKit for one stage of it.

Inputs are hard links into the cache, so the context needs no disk space. BuildKit's cache mounts keep ccache
and the Ninja tree, so a killed build continues from there. ``advice`` searches the last lines of a failed
compile. Each of its patterns is printed by the tool itself: nvcc 12.4 and GCC 12, with a planted fault
(tests/integration/test_compile_faults.py), and the last one by BuildKit (``util/progress/logs``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from builder.config.build_plan import BuildPlan, Rendered, Workplace
from builder.config.variants import Origin, SuiteSystem
from builder.console import Reporter
from builder.errors import CommandError, ConfigError, DiskError, ToolMissingError, TransferError, one_line
from builder.farm import agent, status
from builder.files.disk import disk_errors
from builder.io.debian.rootfs import DebianRootfs
from builder.io.docker.engine import DockerEngine, ImageBuild
from builder.io.store import FileStore

_USER = "ortpacks: "

_MARKED_LINE = re.compile(rf"#\d+ \d+\.\d+ (?P<mark>{_USER}|{status.MARK}(?=.*}}$))(?P<what>.*)")
"""A line for the user, or a whole status, from ``builder/farm``, after BuildKit's step number and seconds.

BuildKit cuts off what a step prints beyond 2 MiB, perhaps within a status.
"""


def lay_out(
    plan: BuildPlan,
    rendered: Rendered,
    place: Workplace,
    *,
    store: FileStore,
    rootfs: DebianRootfs,
    root: Path,
) -> None:
    """Write Dockerfiles and context into a new folder, and remove the old ``build.log``.

    ``root`` is the project's folder. Raises ``ConfigError`` for patches that are missing or share a name.
    """
    patches = _patches(plan, root)
    shutil.rmtree(place.context, ignore_errors=True)
    place.context.mkdir(parents=True)
    place.log.unlink(missing_ok=True)
    place.dockerfile.write_text(rendered.dockerfile, encoding="utf-8")
    place.runtime_dockerfile.write_text(rendered.runtime_dockerfile, encoding="utf-8")
    _copy(root / "templates/smoke.c", place.context / "smoke.c")
    _copy_all(virtual_card(root), place.context / "virtualcard")
    if plan.origin is Origin.SOURCE:
        costs = root / "builder/farm/costs.tsv"
        _copy_all([*container_programs(root), costs], place.context / "farm")
        _copy_all(patches, place.context / "patches")
    for folder, items in (("debs", rendered.debs), ("sources", rendered.sources)):
        (place.context / folder).mkdir()
        for file in map(store.fetch, items):
            _link(file, place.context / folder / file.name)
    system = plan.on.system
    if isinstance(system, SuiteSystem):
        _link(rootfs.tar(system.suite, system.packages), place.context / "rootfs-build.tar")
        _link(rootfs.tar(system.suite, ()), place.context / "rootfs-bare.tar")


def container_programs(root: Path) -> list[Path]:
    """Return the programs that compile in the build container."""
    return _files(root / "builder/farm", ".c", ".h", ".py")


def virtual_card(root: Path) -> list[Path]:
    """Return the sources of the library that replaces CUDA's runtime on a virtual card."""
    return _files(root / "builder/prove/virtualcard", ".c", ".h", ".sh")


def _files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in suffixes)


def _patches(plan: BuildPlan, root: Path) -> list[Path]:
    """Return the base's patches. Raises ``ConfigError`` for missing files and for two with the same name."""
    key = f"variants.yaml: bases.{plan.base}.patches"
    lost = [f"{key}: {patch} is not there." for patch in plan.patches if not (root / patch).is_file()]
    names = Counter(Path(patch).name for patch in plan.patches)
    alike = [f"{key}: {name} stands in two folders; rename one." for name in names if names[name] > 1]
    if problems := [*lost, *alike]:
        raise ConfigError(problems)
    return [root / patch for patch in plan.patches]


def _copy_all(files: Iterable[Path], folder: Path) -> None:
    """Copy the project's files, since a link would change with its original while a build runs."""
    folder.mkdir()
    for file in files:
        _copy(file, folder / file.name)


def _link(source: Path, target: Path) -> None:
    """Make a hard link if the cache is on the same file system, else a copy. Raises ``DiskError``."""
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    with disk_errors(target, source.stat().st_size):
        shutil.copy2(source, target)


@dataclass(frozen=True, kw_only=True)
class StageBuild:
    """The ports and flags of building a stage."""

    engine: DockerEngine
    store: FileStore
    reporter: Reporter
    builder: str | None = None
    """A buildx builder or Docker context other than the current one."""
    jobs: int | None = None
    """Units that all builds of the machine compile at once; ``None``: one for each of its cores."""
    memory: int | None = None
    """Bytes that these units may take together; ``None``: the machine's free memory."""
    served: Callable[[], AbstractContextManager[Path]] | None = None
    """Opens a socket to compile caches other than the engine's own; ``None`` without such caches."""


def export(
    target: str,
    dest: Path,
    rendered: Rendered,
    place: Workplace,
    means: StageBuild,
    architectures: Sequence[str] = (),
    *,
    anew: bool = False,
) -> None:
    """Build a stage and copy its files to ``dest``, which is replaced only on success.

    ``anew`` compiles although BuildKit has the result as a layer. With ``architectures`` no library is made:
    only their device code is compiled, into ccache and the compile caches. Raises ``CommandError`` with the
    last 30 log lines and advice; the whole log is in ``build.log``.
    """
    for leftover in dest.parent.glob(f"{dest.name}.part-*"):
        shutil.rmtree(leftover)
    fresh = dest.with_name(f"{dest.name}.part-{os.getpid()}")
    limits = {"JOBS": means.jobs, "MEMORY_MIB": means.memory and means.memory >> 20}
    contexts = {} if target in CHECK_STAGES else rendered.contexts
    request = ImageBuild(
        dockerfile=_dockerfile(place, target),
        context=place.context,
        target=target,
        contexts={name: means.store.unpack(wheel) for name, wheel in contexts.items()},
        output=fresh,
        args={name: str(limit) for name, limit in limits.items() if limit is not None}
        | ({"AHEAD": "-".join(architectures)} if architectures else {})
        | ({"ANEW": str(time.time_ns())} if anew or architectures else {}),
        builder=means.builder,
        network=rendered.network,
    )
    try:
        with means.served() if means.served else nullcontext() as socket:
            _build(replace(request, sockets={agent.NAME: socket} if socket else {}), place.log, means)
        shutil.rmtree(dest, ignore_errors=True)
        fresh.rename(dest)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _build(request: ImageBuild, log: Path, means: StageBuild) -> None:
    try:
        with _followed(log, means.reporter) as follow:
            means.engine.build(request, follow)
    except KeyboardInterrupt:
        means.reporter.say("what was compiled is kept")
        raise
    except CommandError as error:
        error.cause = one_line(error.tail[-1].removeprefix(_USER)) if error.tail else error.cause
        error.advice = advice("\n".join(error.tail)) or error.advice
        error.log = str(log)
        raise
    except (ToolMissingError, DiskError, TransferError) as error:
        error.log = str(log)
        raise


@contextmanager
def _followed(log: Path, reporter: Reporter) -> Iterator[Callable[[str], None]]:
    """Yield a function that logs each line, and reports the lines that have a mark for the user."""
    with log.open("ab", buffering=0) as file, ExitStack() as display:  # nothing is left that close() writes
        show: Callable[[float, str], None] | None = None

        def follow(line: str) -> None:
            nonlocal show
            told = _MARKED_LINE.match(line)
            if told is not None and told["mark"] == status.MARK:
                show = show or display.enter_context(reporter.live("compile"))
                now = status.read(told["what"])
                show(now.share, str(now))
                return
            with disk_errors(log):
                file.write(f"{line}\n".encode())
            if told is not None:
                reporter.say(told["what"])

        yield follow


_KNOWN_FAILURES = json.loads(files("builder.compile").joinpath("stages.json").read_text(encoding="utf-8"))
"""Advice by the pattern of what a tool prints, the likeliest cause first."""


def advice(log: str) -> str | None:
    """Return the advice for a known cause in the log, else ``None``."""
    advices = (do for pattern, do in _KNOWN_FAILURES.items() if re.search(pattern, log, re.MULTILINE))
    return next(advices, None)


CHECK_STAGES = ("bare", "cuobjdump", "tools")
"""Stages of the Dockerfile of the check tools; all other stages are in the Dockerfile that compiles."""


def _dockerfile(place: Workplace, target: str) -> Path:
    return place.runtime_dockerfile if target in CHECK_STAGES else place.dockerfile


def build_image(
    place: Workplace,
    target: str,
    tag: str,
    *,
    engine: DockerEngine,
    network: bool,
    trees: Mapping[str, Path],
) -> None:
    """Build a stage of a workplace's rendered Dockerfiles and load it as ``tag``.

    ``trees`` are named contexts. Raises ``CommandError`` with the last 30 log lines.
    """
    request = ImageBuild(
        dockerfile=_dockerfile(place, target),
        context=place.context,
        target=target,
        contexts=trees,
        tags=(tag,),
        network=network,
    )
    build_logged(engine, request, place.log)


def build_logged(engine: DockerEngine, request: ImageBuild, log: Path) -> None:
    """Build an image, and append the engine's lines to ``log``."""
    with log.open("a", encoding="utf-8") as file:
        engine.build(request, lambda line: print(line, file=file))
