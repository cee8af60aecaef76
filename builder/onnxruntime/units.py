"""Which architectures of a list each unit of the CUDA provider is compiled for, and so its container holds.

Official builds up to 1.26 compile every unit for the whole list. From 1.27 on (``ortversions.SPLITS_UNITS``)
some are for part of it, and so are some of our own full builds of 1.21 (``launches``): a container without an
architecture of the set may be just what was meant. Counted in the official wheels: 1.21.0 and 1.23.2 have 155
and 184 containers, all alike; 1.31.1, whose list is 75 80 86 89 90a 120a, has 217 with all six, 91 without
75, 292 with 90a alone and 9 with 120a alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.gpu.architectures import Arch
from builder.onnxruntime.launches import narrowed
from builder.onnxruntime.toolchain import compiled, refused
from builder.onnxruntime.versions import BLACKWELL_ALONE_BREAKS, SPLITS_UNITS

_TURING, _AMPERE, _HOPPER, _CONSUMER_BLACKWELL = 75, 80, 90, 120

_HOPPER_ARCH = Arch(9, 0, "a")


@dataclass(frozen=True)
class UnitSet:
    """Units that are compiled for the same architectures."""

    name: str
    sass: frozenset[Arch]
    units: int | None = None
    """How many they are, where that is known."""
    launched: tuple[int, int] | None = None
    """First and last device that ORT launches their kernels on, ``(75, 79)``; ``None``: those of ``sass``."""

    def meant_for(self, device: int) -> bool:
        """Whether a GPU of capability ``device``, ``75``, would be given their kernels."""
        if self.launched is not None:
            return self.launched[0] <= device <= self.launched[1]
        return device in {arch.number for arch in self.sass}

    def __str__(self) -> str:
        return f"{self.name}: {' '.join(map(str, sorted(self.sass)))}"


def unit_sets(sm: Sequence[Arch], version: str) -> tuple[UnitSet, ...]:
    """The kinds of units of a provider with contrib operators, the whole list first; none is empty.

    Two kinds may be for the same architectures: a container cannot tell which of them it is.
    """
    return split(compiled(sm, version).sass, version)


def split(whole: Iterable[Arch], version: str) -> tuple[UnitSet, ...]:
    """The same for the SASS that units for the whole list hold: of a library whose set nobody told."""
    every = frozenset(whole)
    parts = _parts(every, version) if SPLITS_UNITS.holds(version) else _launched(every, version)
    return tuple(kind for kind in (UnitSet("whole list", every), *parts) if kind.sass)


def kinds_found(containers: Iterable[frozenset[Arch]], version: str) -> tuple[UnitSet, ...]:
    """The kinds by what containers hold, the widest taken for the whole list; ``()`` if all are one kind."""
    held = tuple(containers)
    widest = sorted(held, key=len)[-1:]
    return _borne_out(split(widest[0] if widest else (), version), held)


def kinds_asked(
    sm: Sequence[Arch], version: str | None, containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """The kinds by the set that was asked for; ``()`` if all are one kind or ORT's CMake refuses it."""
    if version is None or refused(sm, version):
        return ()
    return _borne_out(unit_sets(sm, version), containers)


def _borne_out(kinds: tuple[UnitSet, ...], containers: Iterable[frozenset[Arch]]) -> tuple[UnitSet, ...]:
    """The kinds, if as many containers hold each part of the list as there are units for it; else ``()``.

    So a library that was compiled for the whole list throughout is held to it, and one container more or less
    of a part is a container that lost an architecture.
    """
    wanted: Counter[frozenset[Arch]] = Counter()
    for kind in kinds[1:]:
        wanted[kind.sass] += kind.units or 0
    found = Counter(containers)
    uncounted = all(kind.units is None for kind in kinds[1:])
    agree = uncounted or all(found[part] == count for part, count in wanted.items())
    return kinds if len(kinds) > 1 and agree else ()


def explained_by(found: Iterable[Arch], kinds: Sequence[UnitSet]) -> tuple[UnitSet, ...]:
    """The kinds that are for exactly these architectures; none for a container that nothing explains.

    Exactly: a unit that lost one of its architectures must not pass for one that never had it.
    """
    held = frozenset(found)
    return tuple(kind for kind in kinds if kind.sass == held)


def meant_for(arch: Arch, kinds: Sequence[UnitSet], found: Iterable[Arch]) -> bool:
    """Whether a container with SASS for ``found`` would hold ``arch`` if its compiler had done all it should.

    One that nothing explains was meant for all. A device that the rest of a library serves by an older
    architecture's code (7.5 by sm_70) may still ask for a unit that was compiled for none of it.
    """
    explaining = explained_by(found, kinds)
    return not explaining or any(kind.meant_for(arch.number) for kind in explaining)


def unasked(sm: Sequence[Arch], version: str) -> tuple[Arch, ...]:
    """Architectures that come along although nobody asked: sm_90a, once anything newer is in the list."""
    whole = set(compiled(sm, version).sass)
    made = {arch for kind in unit_sets(sm, version) for arch in kind.sass}
    return tuple(sorted(made - whole))


def _parts(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    yield UnitSet("flash attention", _those(whole, lambda number: number >= _AMPERE))
    yield UnitSet("LLM", _those(whole, _llm(version)))
    newer = _those(whole, lambda number: number >= _HOPPER)
    yield UnitSet("TMA for Hopper", frozenset({_HOPPER_ARCH} if newer else ()))
    yield UnitSet("TMA for Blackwell", _those(whole, lambda number: number >= _CONSUMER_BLACKWELL))


def _launched(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    for launch, part in narrowed(whole, version):
        yield UnitSet(launch.name, part, launch.units, (launch.first, launch.last))


def _llm(version: str) -> Callable[[int], bool]:
    """1.27 leaves sm_120 and newer out of the LLM units, later releases do so on Windows alone."""
    below = _CONSUMER_BLACKWELL if BLACKWELL_ALONE_BREAKS.holds(version) else 10_000
    return lambda number: _TURING <= number < below


def _those(arches: frozenset[Arch], wanted: Callable[[int], bool]) -> frozenset[Arch]:
    return frozenset(arch for arch in arches if wanted(arch.number))
