"""Rules for the architectures that each compile unit of the CUDA provider, and its container, is meant for.

Official builds up to 1.26 compile every unit for the whole list. From 1.27 on (``versions.SPLITS_UNITS``)
some units are compiled for a part of the list, so a container may lack an architecture of the set on purpose.
Counted in the official wheels: 1.21.0 and 1.23.2 have 155 and 184 containers, all alike; 1.31.1, whose list
is 75 80 86 89 90a 120a, has 217 with all six, 91 without 75, 292 with only 90a and 9 with only 120a.

This project's full builds of 1.21.0 leave out code that is never launched. ORT's CMake compiles each unit for
the whole list, but the host code of some units launches their kernels on few devices: flash attention checks
for 8.x or 9.0 before each launch. Line numbers are those of 1.21.0's source, which was read completely; in
builds of other releases nothing is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.gpu.architectures import Arch
from builder.onnxruntime.architecture_list import compiled, refused
from builder.onnxruntime.versions import LLM_WITHOUT_120, SPLITS_UNITS, ReleaseRange

_CONTRIB = "contrib_ops/cuda/"

_ATTENTION = f"{_CONTRIB}bert/"

_READ = ReleaseRange(first=(1, 21, 0), last=(1, 21, 0))


@dataclass(frozen=True)
class Launch:
    """Units whose kernels are launched on a range of devices only."""

    name: str
    path: str
    """The beginning of the paths of these units' sources below ``onnxruntime/``."""
    units: int
    """The number of units, each of which has one fatbin container."""
    first: int
    """The oldest device, by its capability without the point: ``80``."""
    last: int
    """The newest device, in the same form."""
    source: str
    """The place in ORT's source that decides it."""
    option: str = ""
    """The CMake option that compiles these units if ``ON``; empty where there is none."""
    ptx: Arch | None = None
    """The architecture from whose PTX the SASS for all newer ones is made, also in sets without it."""
    served: Mapping[int, int] = field(default_factory=dict)
    """Numbers of older architectures by those whose devices run their SASS, if the set has the older one."""

    def launched(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` whose devices the kernels are launched on."""
        return frozenset(arch for arch in arches if self.first <= arch.number <= self.last)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` that the units are compiled for, and the lowest one if it would be none.

        A unit cannot be compiled for no architecture, and its host code is needed for linking.
        """
        whole = sorted(arches)
        plain = {arch.number for arch in whole if not arch.suffix}
        made = {
            arch for arch in self.launched(whole) if arch.suffix or self.served.get(arch.number) not in plain
        }
        return frozenset(made or whole[:1])


_MEMORY_EFFICIENT = f"{_ATTENTION}cutlass_fmha/memory_efficient_attention.cu line 13"

_ATTENTIONS_PTX = Arch(8, 0)
"""Shared PTX of flash and lean attention. nvcc 12.4's PTX differs only in ``.target``: of all 32 units of
flash attention for 80 and 89, of head size 32 also for 90, of both of lean attention for 80, 86, 89 and 90
(docs/decisions/0009-pieces.md)."""

_FLASH_SASS: Mapping[int, int] = {86: 80}
"""Shared SASS of flash attention: SASS for 8.0 runs on 8.6 (CUDA C++ Programming Guide, "Binary
Compatibility") and is made from the same PTX. FlashAttention's own wheels have no other SASS for 8.x
(setup.py of Dao-AILab/flash-attention at 0029136)."""

LAUNCHES: tuple[Launch, ...] = (
    Launch(
        *("flash attention", f"{_ATTENTION}flash_attention/flash_fwd_", 32, 80, 90),
        f"{_ATTENTION}flash_attention/flash_api.cc line 413",
        "onnxruntime_USE_FLASH_ATTENTION",
        _ATTENTIONS_PTX,
        _FLASH_SASS,
    ),
    Launch(
        *("lean attention", f"{_ATTENTION}lean_attention/lean_fwd_", 2, 80, 90),
        f"{_ATTENTION}lean_attention/lean_api.cc line 256",
        "onnxruntime_USE_LEAN_ATTENTION",
        _ATTENTIONS_PTX,
    ),
    Launch(
        *("memory-efficient attention for sm_50", f"{_ATTENTION}cutlass_fmha/fmha_sm50.cu", 1, 50, 69),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_70", f"{_ATTENTION}cutlass_fmha/fmha_sm70.cu", 1, 70, 74),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_75", f"{_ATTENTION}cutlass_fmha/fmha_sm75.cu", 1, 75, 79),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_80", f"{_ATTENTION}cutlass_fmha/fmha_sm80.cu", 1, 80, 999),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("mixture of experts", f"{_CONTRIB}moe/ft_moe/moe_gemm_kernels_", 4, 70, 89),
        f"{_CONTRIB}moe/ft_moe/moe_gemm_kernels_template.h line 386: elsewhere it throws",
    ),
)

NO_DEVICE_CODE: tuple[str, ...] = (f"{_ATTENTION}cudnn_fmha/cudnn_flash_attention.cu",)
"""Paths of the sources of CUDA units without a kernel, which are compiled by the C++ compiler. The unit
includes cuDNN's front end, a header of 10,000 lines that nvcc would parse for each architecture (458 CPU
seconds for five, 4 GB)."""


_SHARED_PTX: Mapping[int, int] = {52: 50, 61: 60}
"""Numbers of older architectures by those whose SASS is made from their PTX.

nvcc makes the PTX of a unit once for both, then SASS for each (``code=[sm_50,sm_52]``; NVIDIA's manual of
nvcc, "Two-Staged Compilation"). ORT 1.21.0, CUTLASS 3.5.1 and CUDA 12.4's headers compare ``__CUDA_ARCH__``
with no number from 501 to 520. Only two functions compare it with numbers from 601 to 610: dp4a, which ORT
calls only in ``qordered_layer_norm_impl.cu``, an operator that needs sm_75, and cuRAND's MRG32k3a, which ORT
does not use. So 5.2 and 6.1 get CUB's block sizes for 5.0 and 6.0.
"""


def shared_ptx(sm: Iterable[Arch], version: str, launch: Launch | None = None) -> Mapping[Arch, Arch]:
    """Return the older architectures by those whose SASS is made from their PTX.

    In all units or in those of ``launch``. Empty for an ORT version whose source was not read.
    """
    known = {arch.number: arch for arch in sm if not arch.suffix} if version in _READ else {}
    shared = {known[new]: known[old] for new, old in _SHARED_PTX.items() if new in known and old in known}
    ptx = launch.ptx if launch else None
    return shared | ({arch: ptx for arch in known.values() if arch > ptx} if ptx else {})


def launches(version: str) -> tuple[Launch, ...]:
    """Return the known ``LAUNCHES`` of an ORT version; none for a version whose source was not read."""
    return LAUNCHES if version in _READ else ()


def without_device_code(version: str) -> tuple[str, ...]:
    """Return the paths of an ORT version's CUDA sources without a kernel; none for a version not read."""
    return NO_DEVICE_CODE if version in _READ else ()


def left_out(arches: Iterable[Arch], version: str) -> tuple[Launch, ...]:
    """Return the units that a full build does not compile: no architecture of the set launches their kernels.

    Their CMake options are ``OFF``; without them, nothing is left of these sources.
    """
    whole = tuple(arches)
    return tuple(launch for launch in launches(version) if launch.option and not launch.launched(whole))


def narrowed(arches: Iterable[Arch], version: str) -> tuple[tuple[Launch, frozenset[Arch]], ...]:
    """Return the units that are compiled for a part of the set only, each with that part."""
    whole = frozenset(arches)
    return tuple((launch, part) for launch, part in compiled_launches(whole, version) if part != whole)


def compiled_launches(arches: Iterable[Arch], version: str) -> Iterator[tuple[Launch, frozenset[Arch]]]:
    """Yield the known ``LAUNCHES`` of a full build, each with the architectures it is compiled for."""
    whole = frozenset(arches)
    skipped = left_out(whole, version)
    for launch in launches(version):
        if launch not in skipped:
            yield launch, launch.compiled(whole)


_TURING, _AMPERE, _HOPPER, _CONSUMER_BLACKWELL = 75, 80, 90, 120

_HOPPER_ARCH = Arch(9, 0, "a")


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


def unit_sets(sm: Sequence[Arch], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units of a provider with contrib operators, that for the whole list first.

    Sets without architectures are left out. Two sets may have the same architectures; then it is unknown
    which of them a container belongs to.
    """
    return unit_sets_of_list(compiled(sm, version).sass, version)


def unit_sets_of_list(whole: Iterable[Arch], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units as ``unit_sets`` does, from the SASS of units for the whole list.

    It is for a library whose set is not known.
    """
    every = frozenset(whole)
    parts = _parts(every, version) if SPLITS_UNITS.holds(version) else _launched_sets(every, version)
    return tuple(one for one in (UnitSet("whole list", every), *parts) if one.sass)


def observed_unit_sets(containers: Iterable[frozenset[Arch]], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units that explain ``containers``, the widest of which has the whole list.

    Empty if all units are of one set, or the numbers of containers do not agree.
    """
    held = tuple(containers)
    widest = sorted(held, key=len)[-1:]
    return _if_counts_agree(unit_sets_of_list(widest[0] if widest else (), version), held)


def expected_unit_sets(
    sm: Sequence[Arch], version: str | None, containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """Return the sets of units for the requested set ``sm``.

    Empty if all units are of one set, the numbers of containers do not agree, the version is ``None`` or
    ORT's CMake refuses an architecture.
    """
    if version is None or refused(sm, version):
        return ()
    return _if_counts_agree(unit_sets(sm, version), containers)


def _if_counts_agree(
    unit_sets: tuple[UnitSet, ...], containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """Return ``unit_sets`` if each part of the list is in as many containers as it has units; else ``()``.

    So a library whose units are all compiled for the whole list has to hold all of it, and a container too
    many or too few for a part is one that lost an architecture. If no number of units is known, nothing is
    compared.
    """
    wanted: Counter[frozenset[Arch]] = Counter()
    for one in unit_sets[1:]:
        wanted[one.sass] += one.units or 0
    found = Counter(containers)
    uncounted = all(one.units is None for one in unit_sets[1:])
    agree = uncounted or all(found[part] == count for part, count in wanted.items())
    return unit_sets if len(unit_sets) > 1 and agree else ()


def explained_by(found: Iterable[Arch], unit_sets: Sequence[UnitSet]) -> tuple[UnitSet, ...]:
    """Return the sets of units that are for exactly the architectures ``found``; empty where there is none.

    They must agree exactly, so that a unit that lost an architecture is not taken for one that never had it.
    """
    held = frozenset(found)
    return tuple(one for one in unit_sets if one.sass == held)


def meant_for(arch: Arch, unit_sets: Sequence[UnitSet], found: Iterable[Arch]) -> bool:
    """Return whether a container with SASS for ``found`` is meant for the devices of ``arch``.

    A container that no set of units explains is meant for all devices. A device that runs an older
    architecture's code (7.5 that of sm_70) may need a unit that was not compiled for that architecture.
    """
    explaining = explained_by(found, unit_sets)
    return not explaining or any(one.meant_for(arch.number) for one in explaining)


def _parts(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    yield UnitSet("flash attention", _those(whole, lambda number: number >= _AMPERE))
    yield UnitSet("LLM", _those(whole, _has_llm_units(version)))
    newer = _those(whole, lambda number: number >= _HOPPER)
    yield UnitSet("TMA for Hopper", frozenset({_HOPPER_ARCH} if newer else ()))
    yield UnitSet("TMA for Blackwell", _those(whole, lambda number: number >= _CONSUMER_BLACKWELL))


def _launched_sets(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    for launch, part in narrowed(whole, version):
        yield UnitSet(launch.name, part, launch.units, (launch.first, launch.last))


def _has_llm_units(version: str) -> Callable[[int], bool]:
    below = _CONSUMER_BLACKWELL if LLM_WITHOUT_120.holds(version) else 10_000
    return lambda number: _TURING <= number < below


def _those(arches: frozenset[Arch], wanted: Callable[[int], bool]) -> frozenset[Arch]:
    return frozenset(arch for arch in arches if wanted(arch.number))
