"""matrix: the jobs of a release, one a package, as GitHub's ``strategy.matrix`` takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from builder.builds.workshop import Workshop
from builder.formats.providers import CUDA
from builder.project.variants import Origin, Project, Variant

_RUNNER = "ubuntu-24.04"
_MINUTES = {Origin.WHEEL: 60, Origin.AUTO: 360, Origin.SOURCE: 360}
"""A repacked wheel takes minutes; what may compile gets all that a hosted runner gives, six hours.

Source: docs.github.com, "Actions limits", job execution time.
"""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One job: what it makes, and where."""

    variant: str
    sm: tuple[str, ...]
    """``75``, ``90a``; empty for a package without CUDA."""
    origin: str
    """As ``variants.yaml`` says it: ``auto`` is decided by the job itself."""
    runner: str
    """A label of ``runs-on``."""
    timeout_minutes: int


def show(shop: Workshop, *, as_json: bool) -> None:
    """Print it: a table, or JSON on one line. Raises ``ConfigError`` for a broken ``variants.yaml``."""
    found = legs(shop.project)
    shop.console.show(dumps(found) if as_json else "\n".join(table(found)))


def legs(project: Project) -> tuple[Leg, ...]:
    """A leg for each package's name, in the order of ``variants.yaml``; those without CUDA are repacked."""
    origin = project.onnxruntime.origin
    return tuple(
        _leg(one, origin if one.provider == CUDA else Origin.WHEEL) for one in project.packages.values()
    )


def dumps(found: Iterable[Leg]) -> str:
    """``docs/schemas/matrix.schema.json`` on one line, which is what a step's output can be."""
    return json.dumps({"include": [asdict(leg) for leg in found]})


def table(found: Iterable[Leg]) -> Iterator[str]:
    """A line a leg."""
    for leg in found:
        sm = " ".join(leg.sm) or "-"
        yield f"{leg.variant:<10} {leg.origin:<7} {leg.runner:<13} {leg.timeout_minutes:>4} min  sm {sm}"


def _leg(variant: Variant, origin: Origin) -> Leg:
    return Leg(
        variant=variant.name,
        sm=tuple(str(arch) for arch in variant.sm),
        origin=origin.value,
        runner=_RUNNER,
        timeout_minutes=_MINUTES[origin],
    )
