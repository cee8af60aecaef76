"""The jobs of a release on GitHub, one for each package or architecture, as ``release.yml`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from builder.builds.wiring import Wiring
from builder.errors import ValidationError
from builder.onnxruntime.toolchain import widened
from builder.pipeline.plan import Decision, PlanOptions, decide, require_base
from builder.project.variants import Origin, Project

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


def show_matrix(wiring: Wiring, *, as_json: bool, by: str | None, base: str = "auto") -> None:
    """Print the jobs as a table, or as JSON on one line.

    ``base``: the base that compiles, which may add architectures (``widen``); with ``auto`` none are added.
    Raises ``ConfigError``, and ``ValidationError`` for a ``--by`` that is not ``arch``.
    """
    require_base(wiring.project, base)
    if by not in {None, "arch"}:
        raise ValidationError(f"--by {by!r} is not arch.", advice="Leave it out for one job a package.")
    found = matrix_legs(wiring.project)
    found = architecture_legs(found, wiring.project, base) if by else found
    wiring.console.show(matrix_json(found) if as_json else "\n".join(matrix_table(found)))


def matrix_legs(project: Project) -> tuple[MatrixLeg, ...]:
    """Return a job for each package of ``--all``, in the order of variants.yaml.

    Official wheels are repacked.
    """
    origin = project.onnxruntime.origin
    packages = (one for one in project.packages.values() if one.in_all)
    origins = {one: Origin.WHEEL if one.is_official else origin for one in packages}
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


def architecture_legs(legs: Iterable[MatrixLeg], project: Project, base: str) -> tuple[MatrixLeg, ...]:
    """Return a job of ``./run compile --arch`` for each architecture that may have to be compiled."""
    compiled = (leg for leg in legs if leg.origin != Origin.WHEEL.value)
    return tuple(replace(leg, sm=(sm,)) for leg in compiled for sm in _compiled_on(leg, project, base))


def _compiled_on(leg: MatrixLeg, project: Project, base: str) -> Iterable[str]:
    """Return the architectures of a job's package if a base compiles it."""
    if base == "auto":
        return leg.sm
    decisions = Decision(value=base, reason="matrix"), Decision(value=Origin.SOURCE, reason="matrix")
    plan = widened(decide(project, project.variants[leg.variant], PlanOptions(), *decisions))
    return map(str, plan.variant.sm)


def matrix_json(found: Iterable[MatrixLeg]) -> str:
    """Return the jobs on one line of JSON (``docs/schemas/matrix.schema.json``), as a step's output."""
    return json.dumps({"include": [asdict(leg) for leg in found]})


def matrix_table(found: Iterable[MatrixLeg]) -> Iterator[str]:
    """Yield the lines of the table, a line for each job."""
    for leg in found:
        sm = " ".join(leg.sm) or "-"
        yield f"{leg.variant:<10} {leg.origin:<7} {leg.runner:<13} {leg.timeout_minutes:>4} min  sm {sm}"
