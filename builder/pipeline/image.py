"""image: a runtime image per variant, made from the finished package and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.formats.package_names import Profile
from builder.ports import Engine, ImageBuild
from builder.project.plan import BuildPlan, Workplace


def image_tag(plan: BuildPlan) -> str:
    """``ortpacks/modern:1.23.2``, ``ortpacks/legacy:1.21.0-minimal``."""
    reduced = plan.profile not in (None, Profile.FULL)
    profile = f"-{plan.profile.value}" if plan.profile and reduced else ""
    return f"ortpacks/{plan.variant.name}:{plan.ort_version}{profile}"


def build_image(
    place: Workplace,
    target: str,
    tag: str,
    *,
    engine: Engine,
    network: bool,
    trees: Mapping[str, Path] | None = None,
    builder: str | None = None,
) -> None:
    """Build and load a stage of a workplace's rendered Dockerfiles under ``tag``.

    ``trees`` are named contexts: ``package`` (the unpacked package) and ``smoke`` (the folder with
    ``ortpacks-smoke``) for the stage ``runtime``. Raises ``CommandError`` with the last 30 log lines.
    """
    of_runtime = target in {"bare", "runtime"}
    request = ImageBuild(
        dockerfile=place.runtime_dockerfile if of_runtime else place.dockerfile,
        context=place.context,
        target=target,
        contexts=trees or {},
        tag=tag,
        builder=builder,
        network=network,
    )
    with place.log.open("a", encoding="utf-8") as log:
        engine.build(request, lambda line: print(line, file=log))
