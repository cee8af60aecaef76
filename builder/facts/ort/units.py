"""The architectures that each compile unit of the CUDA provider, and its container, is meant for.

Official builds up to 1.26 compile every unit for the whole list. Later ones compile some units for a part of
the list (``SourceRules.groups``), so a container may lack an architecture of the set on purpose. Counted in
the official wheels: 1.21.0 and 1.23.2 have 155 and 184 containers, all alike; 1.31.1, whose list is 75 80 86
89 90a 120a, has 217 with all six, 91 without 75, 292 with only 90a and 9 with only 120a.

This project's full builds leave out code that is never launched. ORT's CMake compiles each unit for the whole
list, but the host code of some units launches their kernels on few devices (``SourceRules.launches``): flash
attention of 1.21 checks for 8.x or 9.0 before each launch, that of 1.22 for 8.0 and newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.launch_patterns import Launch
from builder.facts.ort.source_rules import SourceRules


def cmake_list(sm: Sequence[Arch]) -> str:
    """Return the value of CMAKE_CUDA_ARCHITECTURES for SASS of ``sm`` and no PTX."""
    return ";".join(f"{arch}-real" for arch in sm)


_SHARED_PTX: Mapping[int, int] = {52: 50, 61: 60}
"""``{52: 50}``: the SASS for 5.2 is made from the PTX for 5.0.

nvcc makes the PTX of a unit once for both, then SASS for each (``code=[sm_50,sm_52]``; NVIDIA's manual of
nvcc, "Two-Staged Compilation"). That ORT's sources make no difference is read from them
(``SourceRules.is_alike``). CUTLASS 3.5.1 and CUDA 12.4's headers compare ``__CUDA_ARCH__`` with no number
from 501 to 520, and only two functions compare it with numbers from 601 to 610: dp4a, which ORT calls only in
``qordered_layer_norm_impl.cu``, an operator that needs sm_75, and cuRAND's MRG32k3a, which ORT does not use.
So 5.2 and 6.1 get CUB's block sizes for 5.0 and 6.0.
"""


def shared_ptx(sm: Iterable[Arch], rules: SourceRules, launch: Launch | None = None) -> Mapping[Arch, Arch]:
    """Return the architectures whose SASS is made from older PTX, each with the PTX's: ``{52: 50}``.

    This holds for all units, or for those of ``launch``. Empty for a source whose launches are not known.
    """
    known = {arch.number: arch for arch in sm if not arch.suffix} if rules.launches else {}
    shared = {
        known[new]: known[old]
        for new, old in _SHARED_PTX.items()
        if new in known and old in known and rules.is_alike(old, new)
    }
    ptx = launch.ptx if launch else None
    return shared | ({arch: ptx for arch in known.values() if arch > ptx} if ptx else {})


def left_out(arches: Iterable[Arch], rules: SourceRules) -> tuple[Launch, ...]:
    """Return the units that a full build does not compile: no architecture of the set launches their kernels.

    Their CMake options are ``OFF``; without them, nothing is left of these sources.
    """
    whole = tuple(arches)
    return tuple(launch for launch in rules.launches if launch.option and not launch.launched(whole))


def compiled_launches(arches: Iterable[Arch], rules: SourceRules) -> Iterator[tuple[Launch, frozenset[Arch]]]:
    """Yield the known launches of a full build, each with the architectures its units are compiled for."""
    whole = frozenset(arches)
    skipped = left_out(whole, rules)
    for launch in rules.launches:
        if launch not in skipped:
            yield launch, launch.compiled(whole)


@dataclass(frozen=True)
class UnitSet:
    """Units of one kind, which are compiled for the same architectures."""

    name: str
    sass: frozenset[Arch]
    units: int | None = None
    """The number of units; ``None`` where it is unknown."""
    launched: tuple[int, int] | None = None
    """First and last device that ORT launches the kernels on, ``(75, 79)``; ``None``: those of ``sass``."""

    def meant_for(self, device: int) -> bool:
        """Return whether ORT launches the kernels on a GPU of capability ``device``, like ``75``."""
        if self.launched is not None:
            return self.launched[0] <= device <= self.launched[1]
        return device in {arch.number for arch in self.sass}

    def __str__(self) -> str:
        return f"{self.name}: {' '.join(map(str, sorted(self.sass)))}"


def unit_sets(whole: Iterable[Arch], rules: SourceRules) -> tuple[UnitSet, ...]:
    """Return the sets of units of a provider with contrib operators, that for the whole list first.

    ``whole``: the SASS of units for the whole list (``compiled``). Sets without architectures are left out.
    Two sets may have the same architectures; then it is unknown which of them a container belongs to.
    """
    every = frozenset(whole)
    sets = (UnitSet("whole list", every), *_launched_sets(every, rules), *_parts(every, rules))
    return tuple(unit_set for unit_set in dict.fromkeys(sets) if unit_set.sass)


def observed_unit_sets(containers: Iterable[frozenset[Arch]], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units that explain ``containers``, the widest of which has the whole list.

    Empty if all units are of one set, or the numbers of containers do not agree. An official build leaves out
    no launches.
    """
    held = tuple(containers)
    whole, ours = max(held, key=len, default=frozenset[Arch]()), rules_for(version)
    possible = (unit_sets(whole, rules) for rules in (ours, replace(ours, launches=())))
    return next(filter(None, (if_counts_agree(sets, held) for sets in possible)), ())


def if_counts_agree(
    unit_sets: Sequence[UnitSet], containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """Return ``unit_sets`` if each part of the list is in as many containers as it has units; else ``()``.

    So a library whose units are all compiled for the whole list has to hold all of it, and a container too
    many or too few for a part is one that lost an architecture. A part with units whose number is unknown has
    at least the others.
    """
    counts = Counter(containers)
    for part in {unit_set.sass for unit_set in unit_sets[1:]}:
        units = [unit_set.units for unit_set in unit_sets[1:] if unit_set.sass == part]
        count = sum(filter(None, units))
        if counts[part] < count or (counts[part] > count and None not in units):
            return ()
    return tuple(unit_sets) if len(unit_sets) > 1 else ()


def explained_by(arches: Iterable[Arch], unit_sets: Sequence[UnitSet]) -> tuple[UnitSet, ...]:
    """Return the sets of units that are for exactly ``arches``; empty where there is none.

    They must agree exactly, so that a unit that lost an architecture is not taken for one that never had it.
    """
    held = frozenset(arches)
    return tuple(unit_set for unit_set in unit_sets if unit_set.sass == held)


def meant_for(arch: Arch, unit_sets: Sequence[UnitSet], arches: Iterable[Arch]) -> bool:
    """Return whether a container with SASS for ``arches`` is meant for the devices of ``arch``.

    A container that no set of units explains is meant for all devices. A device that runs an older
    architecture's code (7.5 that of sm_70) may need a unit that was not compiled for that architecture.
    """
    explaining = explained_by(arches, unit_sets)
    return not explaining or any(unit_set.meant_for(arch.number) for unit_set in explaining)


def _parts(whole: frozenset[Arch], rules: SourceRules) -> Iterator[UnitSet]:
    numbers = {arch.number for arch in whole}
    for group in rules.groups:
        decides = group.range_of(numbers)
        if decides and decides.target == group.ranges[0].target:
            yield UnitSet(group.name, group.compiled(whole))


def _launched_sets(whole: frozenset[Arch], rules: SourceRules) -> Iterator[UnitSet]:
    for launch, part in compiled_launches(whole, rules):
        if part != whole:
            yield UnitSet(launch.name, part, launch.units, (launch.first, launch.last))
