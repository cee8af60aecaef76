"""Builds of several variants at once, the disk space that they take together, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from builder.builds.disk_needs import DiskNeed, require_disk_space, together
from builder.builds.estimate import Work, joint_work
from builder.builds.side_by_side import side_by_side
from builder.builds.variant_build import VariantBuild
from builder.errors import BuilderError, DiskError, VariantsFailedError


def build_all(
    builds: Mapping[str, VariantBuild], interrupt: Callable[[], None], command: str
) -> tuple[Path, ...]:
    """Build variants at once and return all packages. ``interrupt`` is passed to ``side_by_side``.

    Raises ``ValidationError`` before the first build if ``--memory`` is too little for one of several, and
    ``DiskError`` if they do not fit on a disk together. Of several, a build that fails reports why at once,
    and the other builds go on; ``VariantsFailedError`` then lists what was made and what was not, and
    ``command``, which continues.
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


def joint_compile_work(builds: Iterable[VariantBuild]) -> tuple[Work, int | None]:
    """Return the cost of compiling variants over one pool, and the number of units compiled at once."""
    given = tuple(builds)
    return joint_work([one.plan() for one in given], given[0].unit_costs), given[0].jobs()


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
