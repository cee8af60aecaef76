"""This module estimates the time to compile a plan on this machine from the measured costs of its units.

The table (``builder/inside/costs.tsv``) is for ORT 1.21.0, measured on 2026-11-26. Profile minimal's units
are from a cold build of ``legacy`` alone, the others from a cold build of ``legacy``, ``modern`` and
``latest`` over one pool, each as the first of the three compiled it. Units that ccache has take less time.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from builder.builds.disk_needs import DiskNeed, by_step
from builder.formats.package_names import Host, Profile
from builder.gpu.architectures import Arch
from builder.inside.costs import Cost, estimate, is_cuda
from builder.inside.pool import ALONE, Left, together
from builder.onnxruntime.toolchain import part_of, parts, proposed
from builder.onnxruntime.units import left_out
from builder.onnxruntime.versions import sm_names
from builder.project.build_plan import BuildPlan, package_name
from builder.project.variants import Origin

_PROVIDER_MB = {Profile.FULL: 63, Profile.LEAN: 50, Profile.MINIMAL: 1}
"""Megabytes that an architecture adds to the CUDA provider. Source: the sizes in docs/builds.md."""

_PROVIDER = re.compile(r"CMakeFiles/onnxruntime_providers_(?:cuda|shared)\.dir/|_deps/")

_CONTRIB = "/contrib_ops/"

_MINIMAL = re.compile(
    r"(?!.*/integer_gemm\.cc\.o).*/core/providers/cuda/(?:(?:tunable/)?[^/]+\.cc|math/unary_elementwise_ops_impl\.cu)\.o"
)
"""Pattern of the CUDA provider's units in profile minimal.

Source: 1.21.0's onnxruntime_providers_cuda.cmake lines 5 to 45.
"""

_CANNOT = {
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
    compiled = (output for output in costs if _is_compiled(output, plan))
    of_plan = tuple(parts(plan))
    return {output: estimate(costs, output, part_of(output, of_plan).architectures) for output in compiled}


def compile_work(plan: BuildPlan, costs: Mapping[str, Cost]) -> Work:
    """Return the cost of compiling a plan without any cache; zero if nothing is compiled."""
    units = unit_seconds(plan, costs)
    heaviest = max((costs[output].peak for output in units), default=0)
    return Work(total=sum(units.values()), longest=max(units.values(), default=0.0), heaviest=heaviest)


def joint_work(plans: Sequence[BuildPlan], costs: Mapping[str, Cost]) -> Work:
    """Return the cost of compiling several plans over one pool without any cache.

    What ccache surely has for the next plan counts once: C++ units, and units of one PTX.
    """
    works = [compile_work(plan, costs) for plan in plans]
    return Work(
        total=together(_by_group(plan, costs) for plan in plans),
        longest=max((work.longest for work in works), default=0.0),
        heaviest=max((work.heaviest for work in works), default=0),
    )


def _by_group(plan: BuildPlan, costs: Mapping[str, Cost]) -> Left:
    units, found = unit_seconds(plan, costs), defaultdict[str, float](float)
    of_plan = tuple(parts(plan)) if units else ()
    for output, seconds in units.items():
        ptx = {*part_of(output, of_plan).ptx.values()} if is_cuda(output) else set()
        group = " ".join(map(str, ptx)) or "C++"
        found[ALONE if len(ptx) > 1 else f"{plan.base} {plan.ort_version} {group}"] += seconds
    return found


def _is_compiled(output: str, plan: BuildPlan) -> bool:
    if _PROVIDER.match(output) is None:
        return plan.host is Host.SOURCE
    if _CONTRIB in output:
        without = left_out(plan.variant.sm, plan.ort_version)
        return plan.profile is Profile.FULL and not any(f"/{launch.path}" in output for launch in without)
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
        "profile": plan.profile.value if plan.profile else None,
        "host": plan.host.value if plan.profile else None,
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
    yield f"time     {_time(plan, costs, jobs)}{_faster(plan, costs, jobs)}"
    missing = proposed(plan)
    if missing:
        wider = _with(plan, (*plan.variant.sm, *missing))
        yield f"widen    --widen adds {sm_names(missing)}: {_difference(wider, plan, costs)} more"
    if plan.added:
        narrow = _with(plan, [arch for arch in plan.variant.sm if arch not in plan.added])
        yield f"widen    {sm_names(plan.added)}: {_difference(plan, narrow, costs)} of it"


def _time(plan: BuildPlan, costs: Mapping[str, Cost], at_once: int | None) -> str:
    return work_text(compile_work(plan, costs), at_once, _unmeasured(plan, costs))


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
    known = any(_PROVIDER.match(output) is None for output in costs)
    return (
        "" if known or plan.host is Host.WHEEL else " without the host library, whose cost was not measured"
    )


def _with(plan: BuildPlan, sm: Iterable[Arch]) -> BuildPlan:
    return replace(plan, variant=replace(plan.variant, sm=tuple(sorted(sm))))


def _difference(wider: BuildPlan, narrower: BuildPlan, costs: Mapping[str, Cost]) -> str:
    """Return the cost that a wider set of architectures adds, as text."""
    seconds = compile_work(wider, costs).total - compile_work(narrower, costs).total
    count = len(wider.variant.sm) - len(narrower.variant.sm)
    size = count * _PROVIDER_MB[wider.profile or Profile.FULL]
    return f"about {_rounded(seconds)} CPU s and {size} MB in the CUDA provider"


def _rounded(seconds: float) -> str:
    """Return the number with two significant digits."""
    return f"{round(seconds, 1 - int(math.log10(max(10.0, seconds)))):,.0f}"
