"""Whether libraries hold the device code that a variant promises: findings A001 to A008 on what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from builder.binary.coverage import LibraryCoverage, Support, lacking, promised_by, sass_everywhere
from builder.binary.fatbin_format import Container, Kind
from builder.binary.library_names import must_hold_code
from builder.findings.finding import Code, Finding, Severity
from builder.gpu.architectures import Arch, Capability
from builder.onnxruntime.units import UnitSet, explained_by, kinds_asked, kinds_found
from builder.project.variants import Variant


def promised_devices(variant: Variant) -> tuple[Capability, ...]:
    """The capabilities a variant's packages must run on, by the architectures of its set, each once."""
    promised = (promised_by(arch, widen=variant.widen) for arch in variant.sm)
    return tuple(dict.fromkeys(device for devices in promised for device in devices))


def hold_provider(
    path: str,
    containers: Sequence[Container],
    variant: Variant,
    extra: Severity,
    version: str | None = None,
) -> Iterator[Finding]:
    """A001, A002, A005 and A006: SASS for the whole set in each container, and for nothing else.

    ``120`` is asked for and ``120a`` is found: ORT's own CMake adds the suffix (``coverage.lacking``).
    ``extra``: how bad an architecture is that nobody asked for. ``version``: ORT's, as the provider's bytes
    tell it: some units are compiled for part of the set (``onnxruntime.units``) and held to that part.
    """
    if not containers:
        yield Finding(code=Code.A002, path=path, message="no fatbin container in it, or no such library")
        return
    held = [container.arches(Kind.SASS) for container in containers]
    found = frozenset().union(*held)
    kinds = _kinds((*variant.sm, *_widening(variant, found)), version, held)
    for arch in variant.sm:
        yield from _missing(path, _meant(containers, arch, kinds) or containers, arch, variant)
    yield from _surplus(path, found, variant, extra, kinds)


def native_in(containers: Sequence[Container], version: str | None) -> tuple[Arch, ...]:
    """The architectures with SASS in every container of a provider that is meant for them, sorted."""
    held = [container.arches(Kind.SASS) for container in containers]
    kinds = kinds_found(held, version) if version else ()
    parts = [kind for kind in kinds if kind.sass != kinds[0].sass]
    whole = [one for one in held if not explained_by(one, parts)]
    return tuple(sorted(frozenset.intersection(*whole))) if whole else ()


def _kinds(sm: Sequence[Arch], version: str | None, held: Sequence[frozenset[Arch]]) -> Sequence[UnitSet]:
    """The kinds of units by the set, else by what an official build holds, whose list is another."""
    asked = kinds_asked(sm, version, held)
    found = kinds_found(held, version) if version else ()
    explains_all = [kinds for kinds in (asked, found) if all(explained_by(one, kinds) for one in held)]
    return explains_all[0] if explains_all else asked


def _widening(variant: Variant, found: Iterable[Arch]) -> tuple[Arch, ...]:
    """The architectures found that serve capabilities a widened set promises besides its own."""
    if not variant.widen:
        return ()
    promised = {device.number for device in promised_devices(variant)}
    promised -= {arch.number for arch in variant.sm}
    return tuple(sorted(arch for arch in found if arch.number in promised))


def _meant(containers: Sequence[Container], arch: Arch, kinds: Sequence[UnitSet]) -> Sequence[Container]:
    """The containers that should have ``arch``: all of them where no kinds of units are known.

    A kind that leaves it out is launched on no such device, or serves it by an older architecture's code.
    None should where every container is of such a kind: then the whole set was not compiled.
    """
    return [one for one in containers if _should_have(arch, one.arches(Kind.SASS), kinds)]


def _should_have(arch: Arch, held: frozenset[Arch], kinds: Sequence[UnitSet]) -> bool:
    return arch.number in {one.number for one in held} or not explained_by(held, kinds)


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
    found: frozenset[Arch],
    variant: Variant,
    severity: Severity,
    kinds: Sequence[UnitSet],
) -> Iterator[Finding]:
    wanted = (*variant.sm, *_widening(variant, found), *(arch for kind in kinds for arch in kind.sass))
    numbers = {arch.number for arch in wanted}
    surplus = sorted(arch for arch in found if arch.number not in numbers)
    if surplus:
        yield Finding(
            code=Code.A006,
            path=path,
            message=f"SASS for {names(surplus)} besides what was asked for: bytes that this variant's users "
            "download for nothing (check.extra_sm says how bad that is)",
            wanted=f"{names(variant.sm)} (variants.{variant.name}.sm)",
            got=names(sorted(found)),
            severity=severity,
        )


def hold_code(path: str, coverage: LibraryCoverage | None) -> Iterator[Finding]:
    """A008: a library that is useless without device code holds none that runs."""
    if must_hold_code(path.rpartition("/")[2]) and not (coverage and coverage.runnable):
        got = f"{coverage.containers} containers, and nothing to run in any" if coverage else "no container"
        yield Finding(
            code=Code.A008,
            path=path,
            message="holds no device code that runs, and every release of it does",
            wanted="the file as it is in its wheel",
            got=got,
        )


def hold_library(coverage: LibraryCoverage, variant: Variant) -> Iterator[Finding]:
    """A003: a library with anything to run must run wherever the variant promises, native or by JIT.

    Whoever made it. With the provider held to A001 and A005, no promised capability is then worse than JIT in
    ``coverage.combine``.
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


def known_kinds(coverage: LibraryCoverage) -> Iterator[Finding]:
    """A007: a library holds images of a kind that this release does not know."""
    if coverage.unknown:
        yield Finding(
            code=Code.A007,
            path=coverage.path,
            message=f"{coverage.unknown} images are neither SASS nor PTX nor LTO IR",
            wanted="images that this release knows: a newer toolkit may have made them, or they are damaged",
        )


def by_jit(coverage: LibraryCoverage, variant: Variant) -> list[Capability]:
    """The promised capabilities that a library serves by PTX alone."""
    return [device for device in promised_devices(variant) if coverage.support[device] is Support.JIT]


def names(arches: Sequence[Arch]) -> str:
    """Architectures in words: ``75 80 90a``, or ``none``."""
    return " ".join(map(str, arches)) or "none"
