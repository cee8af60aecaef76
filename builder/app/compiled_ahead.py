"""The variants that the verb compile compiles for single architectures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from builder.builds.variant_build import VariantBuild
from builder.errors import NothingToDoError, ValidationError
from builder.gpu.architectures import Arch
from builder.ports import Reporter
from builder.project.variants import Project, Variant


def candidates(project: Project, architectures: Collection[str], *, widen: bool) -> list[Variant]:
    """Return the variants of ``--all`` that may be compiled for one of the architectures.

    A variant that is to be widened may be, whatever its set. All that are compiled are returned where none
    may be: their plans have the architectures that there are.
    """
    compiled = compiled_variants(project)
    found = [
        one for one in compiled if widen or one.widen or not {*map(str, one.sm)}.isdisjoint(architectures)
    ]
    return found or compiled


def compiled_variants(project: Project) -> list[Variant]:
    """Return the variants of ``--all`` that are not always official wheels."""
    return [one for one in project.variants.values() if one.in_all and not one.is_official]


def left_out(project: Project) -> dict[str, str]:
    """Return the variants that ``--all`` leaves out, by each architecture that they are compiled for."""
    aside = [one for one in project.variants.values() if not one.in_all and not one.is_official]
    return {str(arch): one.name for one in reversed(aside) for arch in one.sm}


def divided(
    builds: Mapping[str, VariantBuild],
    architectures: Sequence[str],
    *,
    named: Collection[str],
    known: Iterable[str],
    aside: Mapping[str, str],
    reporter: Reporter,
) -> dict[str, Sequence[str]]:
    """Return the architectures that each variant compiles, by the variant's name.

    Variants in ``named`` compile all, the others those that they have. ``known`` are the architectures of
    variants that are not among ``builds``, ``aside`` the variants that ``--all`` leaves out by architecture.
    Raises what ``VariantBuild.require_compiled`` does for a named variant, ``ValidationError`` for an
    architecture that no variant has, and ``NothingToDoError`` if official wheels have them all.
    """
    found: dict[str, Sequence[str]] = {}
    idle: list[NothingToDoError] = []
    for name, build in builds.items():
        own = build.architectures()
        wanted = architectures if name in named else [one for one in architectures if one in own]
        known = {*known, *own}
        try:
            build.require_compiled(wanted)
        except NothingToDoError as error:
            if name in named:
                raise
            idle += [error] if wanted else []
        else:
            found |= {name: wanted} if wanted else {}
    if unknown := [one for one in architectures if one not in known]:
        raise _left_out(unknown, aside) or _unknown(unknown, known)
    if not found:
        raise idle[0]
    for reason in idle:
        reporter.say(str(reason))
    return found


def _left_out(unknown: Sequence[str], aside: Mapping[str, str]) -> ValidationError | None:
    """Return the error for an architecture that only a variant outside ``--all`` has; ``None`` for others."""
    one = next(filter(aside.get, unknown), None)
    if one is None:
        return None
    return ValidationError(
        f"--arch: no variant of --all is compiled for {one}",
        advice=f"{aside[one]} is: add --variant {aside[one]}.",
    )


def _unknown(unknown: Sequence[str], known: Iterable[str]) -> ValidationError:
    wanted = Arch.parse(unknown[0]).number
    near = sorted(known, key=lambda one: (abs(Arch.parse(one).number - wanted), one))
    return ValidationError(
        f"--arch: no variant is compiled for {', '.join(unknown)}",
        advice=f"There are, the nearest first, {', '.join(near)}.",
    )
