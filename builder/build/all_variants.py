"""Builds and plans of several variants at once, and the jobs of a release on GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from builder.build.source_reading import rules_of
from builder.build.variant_build import VariantBuild
from builder.compile.estimate import DiskNeed, by_step, disk_lines, require_disk_space, together
from builder.compile.explain import Explanation, explain
from builder.compile.plan import PlanOptions, decide, require_base
from builder.config.build_plan import BuildPlan, widened
from builder.config.load import pick_variants
from builder.config.variants import Origin, Project
from builder.console import Console
from builder.errors import BuilderError, DiskError, ValidationError, VariantsFailedError
from builder.facts.ort.source_rules import SourceRules
from builder.io.process import side_by_side
from builder.io.wiring import Wiring


def build_all(
    builds: Mapping[str, VariantBuild], interrupt: Callable[[], None], command: str
) -> tuple[Path, ...]:
    """Build variants at once and return all packages. ``interrupt`` is passed to ``side_by_side``.

    A build that fails reports why at once, and the others go on. ``VariantsFailedError`` then lists what was
    made and what was not, with ``command``, which continues the work. A single variant's error is raised as
    it is.

    Before the first of several builds, raises ``ValidationError`` if ``--memory`` is too little for one of
    them, and ``DiskError`` if they do not fit on a disk together.
    """
    if len(builds) == 1:
        return next(iter(builds.values())).build()
    _require_resources(builds, interrupt)
    made: dict[str, tuple[Path, ...]] = {}

    def build(name: str) -> None:
        made[name] = builds[name].build_beside_others()

    try:
        side_by_side({name: partial(build, name) for name in builds}, interrupt)
    except VariantsFailedError as error:
        raise VariantsFailedError(
            error.failures,
            what=f"not made: {len(error.failures)} of {len(builds)} variants",
            details=tuple(_account(builds, made, error.failures)),
            advice=f"What was made and compiled is kept. Go on with: {command}",
        ) from error
    return tuple(package for name in builds for package in made[name])


def require_memory(builds: Sequence[VariantBuild]) -> None:
    """Raise ``ValidationError`` if ``--memory`` is less than the heaviest unit of all variants takes."""
    if builds:
        max(builds, key=VariantBuild.heaviest).require_memory()


def joint_disk_needs(builds: Mapping[str, VariantBuild]) -> Iterator[DiskNeed]:
    """Yield the disk space of variants that are built at once, with the variants' names as steps."""
    return together({name: build.disk_needs() for name, build in builds.items()})


def _require_resources(builds: Mapping[str, VariantBuild], interrupt: Callable[[], None]) -> None:
    def needs_of(build: VariantBuild) -> tuple[DiskNeed, ...]:
        try:
            build.require_engine()
            return build.disk_needs()
        except BuilderError:  # the build itself will raise it
            return ()

    found = side_by_side({name: partial(needs_of, build) for name, build in builds.items()}, interrupt)
    needed = dict(zip(builds, found, strict=True))
    require_memory([builds[name] for name in filter(needed.get, builds)])
    try:
        _require_together(needed)
    except DiskError:  # packages are read only now, since that takes seconds
        left = {name: needs for name, needs in needed.items() if needs and not builds[name].is_up_to_date()}
        if len(left) > 1:  # a single build checks its own need
            _require_together(left)


def _require_together(needed: Mapping[str, Iterable[DiskNeed]]) -> None:
    what, advice = f"{', '.join(needed)} do not fit together", "Build fewer at once: --variant for --all. "
    require_disk_space(what, together(needed), advice)


def _account(
    names: Iterable[str], made: Mapping[str, Sequence[Path]], failures: Mapping[str, BuilderError]
) -> Iterator[str]:
    for name in names:
        yield from (f"  made      {name:<8} {package}" for package in made.get(name, ()))
        if name in failures:
            error = failures[name]
            yield f"  not made  {name:<8} {error.headline}"
            yield from (
                f"{'':21}{line}" for line in (error.advice, error.log and f"log: {error.log}") if line
            )


def plans_json(builds: Mapping[str, VariantBuild]) -> str:
    """Return the plans as one JSON document (``docs/schemas/plan.schema.json``)."""
    plans = [build.forecast() for build in builds.values()]
    together = [
        {"variant": need.step, "bytes": need.size, "folder": str(need.folder)}
        for need in by_step(joint_disk_needs(builds))
        if need.size
    ]
    return json.dumps({"format": 1, "plans": plans, "together": together}, indent=2)


def show_plans(wiring: Wiring, builds: Mapping[str, VariantBuild]) -> None:
    """Report each plan and, if there are several, the disk space that their builds take together."""
    for build in builds.values():
        build.show_plan()
    if len(builds) > 1:
        for line in disk_lines(joint_disk_needs(builds)):
            wiring.reporter.say(line)


def show_explanation(console: Console, plans: Iterable[BuildPlan]) -> None:
    """Print each plan's differences from the official build, a line each, then the version's notes."""
    for plan in plans:
        console.show("\n".join(_lines(explain(plan))))


def _lines(explained: Explanation) -> Iterator[str]:
    yield explained.title
    if not explained.differences:
        yield "  no option differs"
    yield from (f"  {line}" for line in explained.differences)
    yield from (f"  note: {note}" for note in explained.notes)


_RUNNER = "ubuntu-24.04"

_MINUTES = {Origin.WHEEL: 60, Origin.AUTO: 360, Origin.SOURCE: 360}
"""Time limits of jobs in minutes: a compile may take a hosted runner's six hours.

Source: docs.github.com, "Actions limits", job execution time.
"""


@dataclass(frozen=True, kw_only=True)
class MatrixLeg:
    """One job of the matrix: what it builds and where it runs."""

    variant: str
    sm: tuple[str, ...]
    """The architectures, ``75``, ``90a``; empty for a package without CUDA."""
    origin: str
    """The origin in ``variants.yaml``; the job itself decides what ``auto`` means."""
    runner: str
    """A label of ``runs-on``."""
    timeout_minutes: int


def show_matrix(
    wiring: Wiring, names: Sequence[str], *, as_json: bool, by: str | None, base: str = "auto"
) -> None:
    """Print the jobs as a table, or as JSON on one line.

    ``names``: variants and providers; empty means all that ``--all`` names. ``base``: the base that compiles,
    which may add architectures (``widen``); with ``auto`` none are added. Raises ``ConfigError``, and
    ``ValidationError`` for an unknown name and for a ``--by`` that is not ``arch``.
    """
    require_base(wiring.project, base)
    if by not in {None, "arch"}:
        raise ValidationError(f"--by {by!r} is not arch.", advice="Leave it out for one job a package.")
    legs = matrix_legs(wiring.project, names)
    if by:
        rules = None if base == "auto" else rules_of(wiring, wiring.project.bases[base], wiring.reporter)
        legs = architecture_legs(legs, wiring.project, base, rules)
    wiring.console.show(matrix_json(legs) if as_json else "\n".join(matrix_table(legs)))


def matrix_legs(project: Project, names: Sequence[str] = ()) -> tuple[MatrixLeg, ...]:
    """Return one job per package: those in ``names``, or all that ``--all`` names, as in variants.yaml.

    A job's origin is ``wheel`` for an official wheel, else the project's. Raises ``ValidationError`` for an
    unknown name.
    """
    origin = project.onnxruntime.origin
    packages = pick_variants(project, names, all_=not names)
    origins = {package: Origin.WHEEL if package.is_official else origin for package in packages}
    return tuple(
        MatrixLeg(
            variant=variant.name,
            sm=tuple(str(arch) for arch in variant.sm),
            origin=origin.value,
            runner=_RUNNER,
            timeout_minutes=_MINUTES[origin],
        )
        for variant, origin in origins.items()
    )


def architecture_legs(
    legs: Iterable[MatrixLeg], project: Project, base: str, rules: SourceRules | None = None
) -> tuple[MatrixLeg, ...]:
    """Return a job of ``./run compile --arch`` for each architecture that may have to be compiled.

    ``rules``: those of the base's source; ``None``: those that are stored for its version.
    """
    compiled = (leg for leg in legs if leg.origin != Origin.WHEEL.value)
    return tuple(replace(leg, sm=(sm,)) for leg in compiled for sm in _compiled_on(leg, project, base, rules))


def _compiled_on(leg: MatrixLeg, project: Project, base: str, rules: SourceRules | None) -> Iterable[str]:
    """Return the architectures of a job's package if a base compiles it."""
    if base == "auto":
        return leg.sm
    plan = decide(project, project.variants[leg.variant], PlanOptions(), base, Origin.SOURCE)
    return map(str, widened(replace(plan, source_rules=rules)).variant.sm)


def matrix_json(legs: Iterable[MatrixLeg]) -> str:
    """Return the jobs on one line of JSON (``docs/schemas/matrix.schema.json``), as a step's output."""
    return json.dumps({"include": [asdict(leg) for leg in legs]})


def matrix_table(legs: Iterable[MatrixLeg]) -> Iterator[str]:
    """Yield the lines of the table, a line for each job."""
    for leg in legs:
        sm = " ".join(leg.sm) or "-"
        yield f"{leg.variant:<10} {leg.origin:<7} {leg.runner:<13} {leg.timeout_minutes:>4} min  sm {sm}"
