"""Rules for the device code that a variant's libraries must hold: findings A001 to A003, A005 to A008."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.binary.coverage import LibraryCoverage, Support, lacking, promised_by, sass_everywhere
from builder.binary.fatbin_format import Container, Kind
from builder.binary.library_names import must_hold_code
from builder.config.variants import Variant
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.units import UnitSet, explained_by, observed_unit_sets
from builder.finding import Code, Finding, Severity


def promised_devices(variant: Variant) -> tuple[Capability, ...]:
    """Return the capabilities that a variant promises, each once, in the order of its set's architectures."""
    promised = (promised_by(arch, widen=variant.widen) for arch in variant.sm)
    return tuple(dict.fromkeys(device for devices in promised for device in devices))


def check_provider(
    path: str,
    containers: Sequence[Container],
    variant: Variant,
    extra: Severity,
    unit_sets: Sequence[UnitSet] = (),
) -> Iterator[Finding]:
    """Yield A001, A002, A005 and A006 for a provider whose containers do not hold SASS for exactly the set.

    ``120a`` satisfies ``120`` of the set: ORT's CMake adds the suffix (``coverage.lacking``). ``extra``: the
    severity of A006, an architecture outside the set. ``unit_sets``: those of the provider's units; some are
    compiled for a part of the set only (``facts.ort.units``), and only that part is required of their
    containers.
    """
    if not containers:
        yield Finding(code=Code.A002, path=path, message="no fatbin container in it, or no such library")
        return
    arches = frozenset().union(*(container.arches(Kind.SASS) for container in containers))
    for arch in variant.sm:
        yield from _missing(
            path, _containers_meant_for(containers, arch, unit_sets) or containers, arch, variant
        )
    yield from _surplus(path, arches, variant, extra, unit_sets)


def native_in(containers: Sequence[Container], version: str | None) -> tuple[Arch, ...]:
    """Return the architectures with SASS in every container of a provider, sorted.

    Containers of units that ORT's ``version`` compiles for a part of the set only are left out.
    """
    held = [container.arches(Kind.SASS) for container in containers]
    unit_sets = observed_unit_sets(held, version) if version else ()
    parts = [part for part in unit_sets if part.sass != unit_sets[0].sass]
    whole = [part for part in held if not explained_by(part, parts)]
    return tuple(sorted(frozenset.intersection(*whole))) if whole else ()


def _containers_meant_for(
    containers: Sequence[Container], arch: Arch, unit_sets: Sequence[UnitSet]
) -> Sequence[Container]:
    """Return the containers that should have ``arch``; all of them where no sets of units are known.

    Units of a set without ``arch`` are not launched on its devices, or run there by an older architecture's
    code. The result is empty where every container is of such a set: then ``arch`` was not compiled at all.
    """
    held = ((container, container.arches(Kind.SASS)) for container in containers)
    return [
        one
        for one, arches in held
        if arch.number in {one.number for one in arches} or not explained_by(arches, unit_sets)
    ]


def _missing(path: str, containers: Sequence[Container], arch: Arch, variant: Variant) -> Iterator[Finding]:
    missing = lacking(containers, arch, widen=variant.widen)
    if not missing:
        return
    everywhere = len(missing) == len(containers)
    message = (
        f"no SASS for sm_{arch} in any of {len(containers)} containers"
        if everywhere
        else f"no SASS for sm_{arch} in {len(missing)} of {len(containers)} containers, the first at offset "
        f"{missing[0].offset:#x}"
    )
    yield Finding(
        code=Code.A001 if everywhere else Code.A005,
        path=path,
        message=message,
        wanted=f"sm_{arch} in each container (variants.{variant.name}.sm)",
        got=names(sass_everywhere(containers)) + " in each container",
    )


def _surplus(
    path: str,
    arches: frozenset[Arch],
    variant: Variant,
    severity: Severity,
    unit_sets: Sequence[UnitSet],
) -> Iterator[Finding]:
    wanted = (*variant.sm, *(arch for unit_set in unit_sets for arch in unit_set.sass))
    numbers = {arch.number for arch in wanted}
    numbers |= {device.number for device in promised_devices(variant)} if variant.widen else set()
    surplus = sorted(arch for arch in arches if arch.number not in numbers)
    if surplus:
        yield Finding(
            code=Code.A006,
            path=path,
            message=f"SASS for {names(surplus)}, which is not in the set: users of this variant download it "
            "for nothing (check.extra_sm sets the severity)",
            wanted=f"{names(variant.sm)} (variants.{variant.name}.sm)",
            got=names(sorted(arches)),
            severity=severity,
        )


def check_has_code(path: str, coverage: LibraryCoverage | None) -> Iterator[Finding]:
    """Yield A008 for a library that is useless without device code and holds none that runs."""
    if must_hold_code(path.rpartition("/")[2]) and not (coverage and coverage.runnable):
        got = f"{coverage.containers} containers, and nothing to run in any" if coverage else "no container"
        yield Finding(
            code=Code.A008,
            path=path,
            message="holds no device code that runs, and every release of it does",
            wanted="the file as it is in its wheel",
            got=got,
        )


def check_promised_gpus(coverage: LibraryCoverage, variant: Variant) -> Iterator[Finding]:
    """Yield A003 for a library with something to run that a promised capability cannot run, native or by JIT.

    The rule applies to libraries of every vendor. A package without A001, A003 and A005 has at least JIT in
    ``coverage.combine`` for each promised capability.
    """
    if not coverage.runnable:
        return
    lost = [
        device
        for device in promised_devices(variant)
        if coverage.support[device] in (Support.NONE, Support.PARTIAL)
    ]
    if lost:
        yield Finding(
            code=Code.A003,
            path=coverage.path,
            message=f"does not run on compute capability {', '.join(map(str, lost))}",
            wanted=f"code for each of {names(variant.sm)}",
            got=f"SASS {names(coverage.sass)}; PTX {names(coverage.ptx)}",
        )


def check_image_kinds(coverage: LibraryCoverage) -> Iterator[Finding]:
    """Yield A007 for a library with images of an unknown kind."""
    if coverage.unknown:
        yield Finding(
            code=Code.A007,
            path=coverage.path,
            message=f"{coverage.unknown} images are neither SASS nor PTX nor LTO IR",
            wanted="images that this release knows: a newer toolkit may have made them, or they are damaged",
        )


def by_jit(coverage: LibraryCoverage, variant: Variant) -> list[Capability]:
    """Return the promised capabilities that run a library by JIT."""
    return [device for device in promised_devices(variant) if coverage.support[device] is Support.JIT]


def names(arches: Sequence[Arch]) -> str:
    """Return architectures as text: ``75 80 90a``, or ``none``."""
    return " ".join(map(str, arches)) or "none"
