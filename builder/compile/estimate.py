"""This module estimates what a build takes: disk space, by step, and the time to compile.

A build that does not fit on its disks is refused. Variants that are built at once are compared with the free
space by their sum, before the first begins. Inputs and check tools, which variants share, count once.
Everything else counts for each variant, also the ``proof`` space that is free again after its end, since all
variants may be verified at the same time. The size of inputs to fetch is known from ``inputs.lock``. All
other sizes are estimated from builds on base assembled on x86-64 Debian 12 with Docker 26.1, measured on
2026-11-23; NVIDIA's own image is not included in any number.

Time follows from the measured costs of units. The table (``builder/farm/costs.tsv``) is for ORT 1.21.0,
measured on 2026-11-26. Profile minimal's units are from a cold build of ``legacy`` alone, the others from a
cold build of ``legacy``, ``modern`` and ``latest`` over one pool, each as the first of the three compiled it.
Units that ccache has take less time.
"""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from builder.compile.render import ninja_tree
from builder.config.build_plan import (
    BuildPlan,
    CompilePlan,
    Rendered,
    UnitPart,
    compile_plan,
    package_name,
    proposed,
    with_set,
)
from builder.config.inputs import OFFICIAL_WHEELS, TRIALS, Input, Lock
from builder.config.variants import Base, Origin, SuiteSystem
from builder.contents.required_files import required_files
from builder.errors import DiskError
from builder.facts.gpu.architectures import sm_names
from builder.farm.costs import Cost, cost_of, estimate, is_cuda
from builder.formats.package_names import LINUX, Host, Profile
from builder.io.debian.rootfs import DebianRootfs
from builder.io.docker.engine import EngineResource
from builder.io.store import FileStore

_UNPACKED = 1.55
"""Bytes of a wheel's files per byte of the wheel.

Measured: 4.02 GB of 2.59 GB in the eight largest (``du -sb``), 2.94 GB of 1.95 GB in a package of them.
"""

_PACKED = {Origin.SOURCE: 0.76, Origin.WHEEL: 1.12}
"""Bytes of a variant's packages per byte of the wheels that they are made from.

Measured: 1.47 GB of 1.93 GB (``legacy``, full), 2.18 GB of 1.95 GB (``modern --mixed``).
"""

_COMPILED = 300_000_000
"""Bytes that a compile leaves in ``dist/VARIANT`` (``du -s``; ``legacy``, full)."""

_TOOLS = 1_500_000_000
"""Bytes of layers and images of the check tools.

Measured: 0.17 GB loaded (``docker images``); two root file systems of 0.65 GB together, as context and as
layer.
"""

_COMPILING = 2_000_000_000
"""Bytes that a compile takes in the engine.

Measured: sources 0.4 GB twice, Ninja's tree and ccache 0.95 GB (``buildx du --verbose``; ``legacy``, full).
"""

_FILE_SYSTEMS = {True: 964_000_000, False: 340_000_000}
"""Bytes of making a root file system that compiles (true), and one without more packages (false).

Measured: tars of 482 MB and 170 MB on 2026-11-24; while a tar is written, the tree that it is of exists too.
"""

_IMAGE, _SERVICE = 110_000_000, 115_000_000
"""Bytes of Debian and Python in a runtime image, and of the service with its models.

Measured: 3,047 MB with ``modern``'s 2,937 MB; 244 MB and 129 MB with and without the service
(docs/images.md).
"""


@dataclass(frozen=True, kw_only=True)
class DiskNeed:
    """The disk space that a step takes, in bytes, and the folder where it takes them."""

    step: str
    size: int
    folder: Path
    thing: str = ""
    """Name of the input or tools if variants share them, so that their space counts once; empty otherwise."""


def disk_needs(
    plan: BuildPlan, rendered: Rendered, lock: Lock, store: FileStore, *, cache: Path, dist: Path
) -> Iterator[DiskNeed]:
    """Yield the disk space of each step outside the engine, with one item for each input to fetch.

    The space of the last step, ``proof``, is free again when the build has ended.
    """
    packed = _packed(plan)
    wheels = _bytes_of(packed, lock)
    officials = _officials(plan, lock) if plan.project.bundle.wheels else []
    yield from _input_needs((*packed, *officials, *_compiling(plan, rendered)), store, cache)
    if plan.origin is Origin.SOURCE:
        yield DiskNeed(step="compiled", size=_COMPILED, folder=dist)
    yield DiskNeed(step="packages", size=int(wheels * _PACKED[plan.origin]), folder=dist)
    if officials:
        yield DiskNeed(step="wheels", size=2 * _bytes_of(officials, lock), folder=dist)
    yield DiskNeed(step="proof", size=int(wheels * _UNPACKED), folder=dist)


def compile_needs(
    plan: BuildPlan, rendered: Rendered, store: FileStore, *, cache: Path, dist: Path
) -> Iterator[DiskNeed]:
    """Yield what ``disk_needs`` does for a compile whose result is not packed."""
    yield from _input_needs(_compiling(plan, rendered), store, cache)
    yield DiskNeed(step="compiled", size=_COMPILED, folder=dist)


def tool_needs(system: Base, store: FileStore, rootfs: DebianRootfs, cache: Path) -> Iterator[DiskNeed]:
    """Yield the disk space of a base's root file systems, and of the models that packages are tried with."""
    yield from _input_needs(TRIALS, store, cache)
    if isinstance(system.system, SuiteSystem):
        suite, packages = system.system.suite, system.system.packages
        for some in (packages, ()):
            if not rootfs.has(suite, some):
                thing = f"rootfs {suite} {' '.join(some)}"
                size = _FILE_SYSTEMS[bool(some)]
                yield DiskNeed(step="file systems", size=size, folder=cache, thing=thing)


def image_needs(
    plan: BuildPlan, lock: Lock, *, dist: Path, engine: Path, service: bool
) -> Iterator[DiskNeed]:
    """Yield the disk space of a runtime image beside its package: tree and layers, and both in the engine."""
    whole = int(_bytes_of(_packed(plan), lock) * _UNPACKED) + _IMAGE + (_SERVICE if service else 0)
    yield from (DiskNeed(step="image", size=2 * whole, folder=folder) for folder in (dist, engine))


def _packed(plan: BuildPlan) -> list[Input]:
    return list(dict.fromkeys(file.source for file in required_files(plan) if file.source))


def _compiling(plan: BuildPlan, rendered: Rendered) -> tuple[Input, ...]:
    contexts = rendered.contexts.values() if plan.origin is Origin.SOURCE else ()
    return (*contexts, *rendered.debs, *rendered.sources)


def _bytes_of(items: Iterable[Input], lock: Lock) -> int:
    return sum(lock.pins[item.key].size for item in items if item.key in lock.pins)


def _input_needs(items: Iterable[Input], store: FileStore, cache: Path) -> Iterator[DiskNeed]:
    for item in dict.fromkeys(items):
        to_fetch, to_unpack = store.absent(item)
        yield DiskNeed(step="inputs", size=to_fetch, folder=cache, thing=item.key)
        yield DiskNeed(step="unpacked", size=int(to_unpack * _UNPACKED), folder=cache, thing=item.key)


def _officials(plan: BuildPlan, lock: Lock) -> list[Input]:
    """Return the pinned official wheels, one a Python, from which the package's wheels are made."""
    name = OFFICIAL_WHEELS.get(plan.variant.provider) if plan.variant.platform == LINUX else None
    return list(lock.python_wheels(f"{name}=={plan.ort_version}"))


def engine_needs(
    plan: BuildPlan,
    rendered: Rendered,
    lock: Lock,
    held: Iterable[EngineResource],
    folder: Path,
    *,
    tools: str | None,
    compiles: bool,
    ahead: str = "",
) -> Iterator[DiskNeed]:
    """Yield the disk space of steps in an engine that has ``held``, and whose data are in ``folder``.

    ``tools`` is the base whose tools check the package, ``None`` if no package is made; ``compiles`` is
    whether the engine would compile, ``ahead`` the value of the Dockerfile's ``AHEAD``.
    """
    names = [f"{thing.kind} {thing.name}" for thing in held]
    if tools and not any(name.startswith(f"image ortpacks/bare:{tools}-") for name in names):
        yield DiskNeed(step="check tools", size=_TOOLS, folder=folder, thing=tools)
    tree = f"cache {ninja_tree(plan, rendered.toolchain_key)}{ahead}"
    if compiles and plan.origin is Origin.SOURCE and tree not in names:
        trees = sum(lock.pins[wheel.key].size for wheel in set(rendered.contexts.values()))
        yield DiskNeed(step="compile", size=_COMPILING + int(trees * _UNPACKED), folder=folder)


def together(needs: Mapping[str, Iterable[DiskNeed]]) -> Iterator[DiskNeed]:
    """Yield the disk space of variants built at once, with variants' names as steps.

    Space for a thing that several variants share counts for the first of them.
    """
    taken: set[str] = set()
    for name, wanted in needs.items():
        mine = [need for need in wanted if not need.thing or need.thing not in taken]
        taken.update(need.thing for need in mine)
        yield from (replace(need, step=name) for need in mine)


def by_step(needs: Iterable[DiskNeed]) -> Iterator[DiskNeed]:
    """Yield the sum of disk space for each step and folder."""
    sizes: Counter[tuple[str, Path]] = Counter()
    for need in needs:
        sizes[need.step, need.folder] += need.size
    yield from (DiskNeed(step=step, size=size, folder=folder) for (step, folder), size in sizes.items())


def disk_lines(needs: Iterable[DiskNeed]) -> Iterator[str]:
    """Yield a line for each disk: the space that the steps take, and the free space."""
    for disk, held in _by_disk(needs).items():
        yield f"room     {_sizes_text(held)} of {gigabytes(shutil.disk_usage(disk).free)} GB free in {disk}"


def require_disk_space(what: str, needs: Iterable[DiskNeed], advice: str = "") -> None:
    """Raise ``DiskError`` for a disk without enough free space; its advice begins with ``advice``."""
    for disk, on_disk in _by_disk(needs).items():
        free = shutil.disk_usage(disk).free
        if sum(need.size for need in on_disk) > free:
            raise DiskError(
                what,
                cause=f"about {_sizes_text(on_disk)} are needed in {disk}, {gigabytes(free)} GB are free",
                advice=f"{advice}`./run clean --dry-run --cache --inputs` shows what can be removed, "
                "`docker system df` what the engine holds. ORTPACKS_CACHE and --dist name folders on other "
                "disks.",
            )


def _sizes_text(needs: Iterable[DiskNeed]) -> str:
    sizes: Counter[str] = Counter()
    for need in needs:
        sizes[need.step] += need.size
    parts = [f"{step} {gigabytes(size)}" for step, size in sizes.items() if gigabytes(size) != gigabytes(0)]
    return f"{gigabytes(sizes.total())} GB" + (f" ({', '.join(parts)})" if parts else "")


def _by_disk(needs: Iterable[DiskNeed]) -> dict[Path, list[DiskNeed]]:
    mounts: dict[int, Path] = {}
    disks: dict[Path, list[DiskNeed]] = {}
    for need in needs:
        folder = need.folder.absolute()
        there = [path for path in (folder, *folder.parents) if path.is_dir()]
        disk = there[0].stat().st_dev
        same = [path for path in there if path.stat().st_dev == disk]
        disks.setdefault(mounts.setdefault(disk, same[-1]), []).append(need)
    return disks


def gigabytes(size: int) -> str:
    """Return a number of bytes in GB, with one decimal place."""
    return f"{size / 1e9:,.1f}"


_PROVIDER_MB = {Profile.FULL: 63, Profile.LEAN: 50, Profile.MINIMAL: 1}
"""Megabytes that an architecture adds to the CUDA provider. Source: the sizes in docs/performance.md."""

_PROVIDER = re.compile(r"CMakeFiles/onnxruntime_providers_(?:cuda|shared)\.dir/|_deps/")

_CONTRIB = "/contrib_ops/"

_MEASURED = "1.21.0"
"""The version whose units the table has. Of another, the CUDA units are those that its source has."""

_EMPTY = 22.0
"""CPU seconds of a unit whose kernels are empty for the set, which is too old for them.

Measured: 13 to 33 (mean 22) for 40 units of flash attention of 1.30's development state for 5.0, 2026-11-30.
"""

_HOST_LIBRARY = 2700.0
"""CPU seconds of the host library, without its contrib operators, for a table that has no unit of it.

Measured: 2,658 for 483 units of 1.23's development state, profile minimal, 2026-12-01, beside other work.
"""

_PROVIDER_UNITS = "CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/onnxruntime"

_MINIMAL = re.compile(
    r"(?!.*/integer_gemm\.cc\.o).*/core/providers/cuda/(?:(?:tunable/)?[^/]+\.cc|math/unary_elementwise_ops_impl\.cu)\.o"
)
"""Pattern of the CUDA provider's units in profile minimal.

Source: 1.21.0's onnxruntime_providers_cuda.cmake lines 5 to 45.
"""

_CANNOT = {
    None: "models with com.microsoft operators in them, or made by the host's optimisations",
    Host.WHEEL: "transformer models at the default optimisation level",
    Host.SOURCE: "models with com.microsoft operators in them",
}
"""The sessions that profile lean cannot run, by the host library's origin (C011)."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The cost of compiling a plan: CPU seconds of all units and of the longest, memory of the heaviest."""

    total: float
    longest: float
    heaviest: int
    """Peak memory of the heaviest unit in MiB."""

    def minutes(self, jobs: int) -> int:
        """Return the minutes that ``jobs`` compilers at once take, at least 1."""
        return max(1, math.ceil(max(self.total / jobs, self.longest) / 60))


def unit_seconds(plan: BuildPlan, costs: Mapping[str, Cost]) -> Mapping[str, float]:
    """Return the CPU seconds of each unit of a plan, by the unit's output; empty if nothing is compiled."""
    if plan.origin is not Origin.SOURCE:
        return {}
    division = compile_plan(plan)
    units: Iterable[str] = costs
    if plan.ort_version != _MEASURED:
        cuda = (f"{_PROVIDER_UNITS}/{path}.o" for path in plan.rules.paths)
        units = (*(output for output in costs if not is_cuda(output)), *cuda)
    return {
        output: _seconds(output, plan, costs, division.part_of(output))
        for output in units
        if _is_compiled(output, plan, division)
    }


def _seconds(output: str, plan: BuildPlan, costs: Mapping[str, Cost], part: UnitPart) -> float:
    compiled = output.replace("cuda.dir/", "cuda_plugin.dir/", 1) if plan.variant.is_plugin else output
    seconds = estimate(costs, compiled, part.architectures)
    if part.launch and part.launch.ptx and not part.launch.launched(plan.variant.sm):
        return min(seconds, _EMPTY)
    return seconds


def compile_work(plan: BuildPlan, costs: Mapping[str, Cost]) -> Work:
    """Return the cost of compiling a plan without any cache; zero if nothing is compiled."""
    units = unit_seconds(plan, costs)
    heaviest = max((cost_of(costs, output).peak for output in units), default=0)
    host = _HOST_LIBRARY if units and plan.host is Host.SOURCE and not _has_host(costs) else 0.0
    return Work(total=host + sum(units.values()), longest=max(units.values(), default=0.0), heaviest=heaviest)


def _is_compiled(output: str, plan: BuildPlan, division: CompilePlan) -> bool:
    if _PROVIDER.match(output) is None:
        return plan.host is Host.SOURCE
    if division.part_of(output).is_lost:
        return False
    if _CONTRIB in output:
        unused = any(f"/{launch.path}" in output for launch in division.left_out)
        return plan.profile is Profile.FULL and not unused
    return (
        plan.profile is not Profile.MINIMAL
        or "/core/providers/cuda/" not in output
        or _MINIMAL.fullmatch(output) is not None
    )


def forecast(
    plan: BuildPlan, costs: Mapping[str, Cost], jobs: int | None, needs: Iterable[DiskNeed]
) -> dict[str, object]:
    """Return a plan with its time and disk space for JSON (``docs/schemas/plan.schema.json``).

    ``jobs``: see ``work_text``.
    """
    return {
        "variant": plan.variant.name,
        "packages": [str(package_name(plan, layout)) for layout in plan.layouts],
        "base": plan.base,
        "base_reason": plan.base_reason,
        "origin": plan.origin.value,
        "origin_reason": plan.origin_reason,
        "onnxruntime": plan.ort_version,
        "cuda": plan.project.cuda.version if plan.variant.sm else None,
        "cuda_reason": plan.cuda_reason or None,
        "profile": plan.profile.value if plan.profile else None,
        "host": plan.host_origin if plan.profile else None,
        "form": plan.variant.form.value,
        "sm": [str(arch) for arch in plan.variant.sm],
        "widened_by": [str(arch) for arch in plan.added],
        "compile": work_document(compile_work(plan, costs), jobs),
        "room": [
            {"step": need.step, "bytes": need.size, "folder": str(need.folder)}
            for need in by_step(needs)
            if need.size
        ],
    }


def work_document(work: Work, jobs: int | None) -> dict[str, object] | None:
    """Return the cost of compiling for JSON, ``None`` if nothing is compiled. ``jobs``: see ``work_text``."""
    if not work.total:
        return None
    return {
        "cpu_seconds": round(work.total),
        "longest_unit_cpu_seconds": round(work.longest),
        "heaviest_unit_mib": work.heaviest,
        "jobs": jobs,
        "minutes": None if jobs is None else work.minutes(jobs),
    }


def estimate_lines(plan: BuildPlan, costs: Mapping[str, Cost], jobs: int | None) -> Iterator[str]:
    """Yield the lines ``time`` and ``widen`` of a plan; none if nothing is compiled or no table exists.

    ``jobs``: see ``work_text``.
    """
    if plan.profile is None or not costs:
        return
    work = work_text(compile_work(plan, costs), jobs, _unmeasured(plan, costs))
    yield f"time     {work}{_faster(plan, costs, jobs)}"
    missing = proposed(plan)
    if missing:
        wider = with_set(plan, (*plan.variant.sm, *missing))
        yield f"widen    --widen adds {sm_names(missing)}: {_difference(wider, plan, costs)} more"
    if plan.added:
        narrow = with_set(plan, {*plan.variant.sm} - {*plan.added})
        yield f"widen    {sm_names(plan.added)}: {_difference(plan, narrow, costs)} of it"


def work_text(work: Work, jobs: int | None, remark: str = "") -> str:
    """Return the time and CPU seconds of compiling as text.

    ``jobs`` is the number of units compiled at once, ``None`` without an engine or on another machine.
    """
    seconds = f"{_rounded(work.total)} CPU s{remark}"
    if jobs is None:
        return f"about {seconds}; on how many cores is not known here"
    return f"about {work.minutes(jobs)} min with {jobs} job{'s' * (jobs > 1)} ({seconds})"


def _faster(plan: BuildPlan, costs: Mapping[str, Cost], jobs: int | None) -> str:
    """Return the time of profile lean and what it cannot run; empty unless the plan's profile is full."""
    if plan.profile is not Profile.FULL:
        return ""
    lean = compile_work(replace(plan, profile=Profile.LEAN), costs)
    takes = f"{_rounded(lean.total)} CPU s" if jobs is None else f"{lean.minutes(jobs)} min"
    return f"; --profile lean takes about {takes} and cannot run {_CANNOT[plan.host]}"


def _unmeasured(plan: BuildPlan, costs: Mapping[str, Cost]) -> str:
    if plan.host is Host.WHEEL or _has_host(costs) or (plan.host and plan.profile is not Profile.FULL):
        return ""
    what = "the host library's contrib operators" if plan.host else "the parts of ONNX Runtime that it links"
    return f" without {what}, whose cost was not measured"


def _has_host(costs: Mapping[str, Cost]) -> bool:
    return any(_PROVIDER.match(output) is None for output in costs)


def _difference(wider: BuildPlan, narrower: BuildPlan, costs: Mapping[str, Cost]) -> str:
    seconds = compile_work(wider, costs).total - compile_work(narrower, costs).total
    count = len(wider.variant.sm) - len(narrower.variant.sm)
    size = count * _PROVIDER_MB[wider.profile or Profile.FULL]
    return f"about {_rounded(seconds)} CPU s and {size} MB in the CUDA provider"


def _rounded(seconds: float) -> str:
    return f"{round(seconds, 1 - int(math.log10(max(10.0, seconds)))):,.0f}"
