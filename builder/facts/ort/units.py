"""Rules for the architectures that each compile unit of the CUDA provider, and its container, is meant for.

ORT's CMake refuses some architectures of a list and rewrites others. Before 1.23, it leaves
CMAKE_CUDA_ARCHITECTURES as it is: ``90`` is SASS and PTX, ``90-real`` SASS, ``90-virtual`` PTX (CMake's
documentation of CUDA_ARCHITECTURES). From 1.23 on, ORT's CMake files rewrite the list first
(``versions.REWRITES_ARCHES``).

Official builds up to 1.26 compile every unit for the whole list. From 1.27 on (``versions.SPLITS_UNITS``)
some units are compiled for a part of the list, so a container may lack an architecture of the set on purpose.
Counted in the official wheels: 1.21.0 and 1.23.2 have 155 and 184 containers, all alike; 1.31.1, whose list
is 75 80 86 89 90a 120a, has 217 with all six, 91 without 75, 292 with only 90a and 9 with only 120a.

This project's full builds of 1.21 and 1.22 leave out code that is never launched. ORT's CMake compiles each
unit for the whole list, but the host code of some units launches their kernels on few devices: flash
attention of 1.21 checks for 8.x or 9.0 before each launch, that of 1.22 for 8.0 and newer. Line numbers are
those of 1.21.0's source unless another is named. Both sources were read: 1.22.0 and 1.22.1 differ from 1.21.0
in six new units, and in that check. In builds of other releases nothing is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from builder.facts.gpu.architectures import Arch
from builder.facts.ort.versions import (
    LLM_WITHOUT_120,
    REFUSES_FAMILIES,
    REWRITES_ARCHES,
    SPLITS_UNITS,
    ReleaseRange,
)

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")

_ACCELERATED = frozenset({90, 100, 101, 120})
"""The list ``ARCHITECTURES_WITH_ACCEL`` of ORT's ``cuda_configuration.cmake``."""


@dataclass(frozen=True)
class Compiled:
    """The architectures of the SASS and the PTX in each unit that is compiled for the whole list."""

    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


def cmake_list(sm: Sequence[Arch]) -> str:
    """Return the value of CMAKE_CUDA_ARCHITECTURES for SASS of ``sm`` and no PTX."""
    return ";".join(f"{arch}-real" for arch in sm)


def compiled(sm: Sequence[Arch], version: str) -> Compiled:
    """Return the architectures of a provider of ORT ``version`` that is compiled for the set ``sm``.

    Raises ``ValueError`` where ORT's CMake refuses an architecture (``refused`` names them).
    """
    return read_list(cmake_list(sm), version)


def read_list(text: str, version: str) -> Compiled:
    """Return the architectures that ORT ``version`` compiles for with this CMAKE_CUDA_ARCHITECTURES.

    Raises ``ValueError`` for an entry that is no architecture, or that ORT's CMake refuses.
    """
    entries = [_entry(word) for word in text.split(";") if word]
    sass = {arch for arch, kind in entries if kind != "virtual"}
    if not REWRITES_ARCHES.holds(version):
        ptx = {arch for arch, kind in entries if kind != "real"}
        return Compiled(tuple(sorted(sass)), tuple(sorted(ptx)))
    stopped = refused((arch for arch, _ in entries), version)
    if stopped:
        raise ValueError(f"Unrecognized CUDA architecture: {stopped[0]}")
    virtual = [arch for arch, kind in entries if kind == "virtual"]
    return Compiled(tuple(sorted(set(map(_accelerated, sass)))), tuple(virtual[-1:]))


def refused(sm: Iterable[Arch], version: str) -> tuple[Arch, ...]:
    """Return the architectures of ``sm`` that the CMake files of ORT ``version`` refuse."""
    return tuple(arch for arch in sm if arch.suffix == "f") if REFUSES_FAMILIES.holds(version) else ()


def rewritten(sm: Sequence[Arch], version: str) -> tuple[tuple[Arch, Arch], ...]:
    """Return each architecture of ``sm`` that ORT ``version`` rewrites, with its replacement."""
    if not REWRITES_ARCHES.holds(version):
        return ()
    pairs = ((arch, _accelerated(arch)) for arch in sm if arch.suffix != "f")
    return tuple((arch, becomes) for arch, becomes in pairs if arch != becomes)


def _entry(word: str) -> tuple[Arch, str]:
    """Return an architecture and ``real``, ``virtual`` or ``""``, which means both.

    Raises ``ValueError`` for a word that is no entry.
    """
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return Arch.parse(match["arch"]), match["kind"] or ""


def _accelerated(arch: Arch) -> Arch:
    """Return the architecture by which ORT replaces ``arch``.

    ORT drops the suffix, then adds ``a`` to the architectures that it has accelerated kernels for: 103a
    becomes 103, 90 becomes 90a.
    """
    return Arch(arch.major, arch.minor, "a" if arch.number in _ACCELERATED else "")


_CONTRIB = "contrib_ops/cuda/"

_ATTENTION = f"{_CONTRIB}bert/"

_READ = ReleaseRange(first=(1, 21, 0), last=(1, 22, 1))


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
    span: ReleaseRange = _READ
    """The releases that this is true for."""
    served: Mapping[int, int] = field(default_factory=dict)
    """``{86: 80}``: devices of 8.6 run the SASS for 8.0, if the set has 8.0."""

    def launched(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` whose devices the kernels are launched on."""
        return frozenset(arch for arch in arches if self.first <= arch.number <= self.last)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` that the units are compiled for; if none is, the lowest of ``arches``.

        A unit cannot be compiled for no architecture, and its host code is needed for linking.
        """
        whole = sorted(arches)
        plain = {arch.number for arch in whole if not arch.suffix}
        made = {
            arch for arch in self.launched(whole) if arch.suffix or self.served.get(arch.number) not in plain
        }
        return frozenset(made or whole[:1])


_ATTENTIONS_PTX = Arch(8, 0)
"""Shared PTX of flash and lean attention. nvcc 12.4's PTX differs only in ``.target``: of all 32 units of
flash attention for 80 and 89, of head size 32 also for 90, of both of lean attention for 80, 86, 89 and 90
(docs/decisions/0009-pieces.md)."""

_FLASH_SASS: Mapping[int, int] = {86: 80}
"""Shared SASS of flash attention: SASS for 8.0 runs on 8.6 (CUDA C++ Programming Guide, "Binary
Compatibility") and is made from the same PTX. FlashAttention's own wheels have no other SASS for 8.x
(setup.py of Dao-AILab/flash-attention at 0029136)."""

_FLASH = Launch(
    *("flash attention", f"{_ATTENTION}flash_attention/flash_fwd_", 32, 80, 90),
    f"{_ATTENTION}flash_attention/flash_api.cc line 413",
    "onnxruntime_USE_FLASH_ATTENTION",
    _ATTENTIONS_PTX,
    ReleaseRange(last=(1, 21)),
    _FLASH_SASS,
)

LAUNCHES: tuple[Launch, ...] = (
    _FLASH,
    replace(
        _FLASH,
        last=999,
        source=f"{_ATTENTION}flash_attention/flash_api.cc line 414 of 1.22.0",
        span=ReleaseRange(first=(1, 22)),
    ),
    Launch(
        *("lean attention", f"{_ATTENTION}lean_attention/lean_fwd_", 2, 80, 90),
        f"{_ATTENTION}lean_attention/lean_api.cc line 256",
        "onnxruntime_USE_LEAN_ATTENTION",
        _ATTENTIONS_PTX,
    ),
    *(
        Launch(
            f"memory-efficient attention for sm_{first}",
            f"{_ATTENTION}cutlass_fmha/fmha_sm{first}.cu",
            1,
            first,
            last,
            f"{_ATTENTION}cutlass_fmha/memory_efficient_attention.cu line 13",
        )
        for first, last in ((50, 69), (70, 74), (75, 79), (80, 999))
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
"""``{52: 50}``: the SASS for 5.2 is made from the PTX for 5.0.

nvcc makes the PTX of a unit once for both, then SASS for each (``code=[sm_50,sm_52]``; NVIDIA's manual of
nvcc, "Two-Staged Compilation"). ORT 1.21.0, CUTLASS 3.5.1 and CUDA 12.4's headers compare ``__CUDA_ARCH__``
with no number from 501 to 520. Only two functions compare it with numbers from 601 to 610: dp4a, which ORT
calls only in ``qordered_layer_norm_impl.cu``, an operator that needs sm_75, and cuRAND's MRG32k3a, which ORT
does not use. So 5.2 and 6.1 get CUB's block sizes for 5.0 and 6.0.
"""


def shared_ptx(sm: Iterable[Arch], version: str, launch: Launch | None = None) -> Mapping[Arch, Arch]:
    """Return the architectures whose SASS is made from older PTX, each with the PTX's: ``{52: 50}``.

    This holds for all units, or for those of ``launch``. Empty for an ORT version whose source was not read.
    """
    known = {arch.number: arch for arch in sm if not arch.suffix} if version in _READ else {}
    shared = {known[new]: known[old] for new, old in _SHARED_PTX.items() if new in known and old in known}
    ptx = launch.ptx if launch else None
    return shared | ({arch: ptx for arch in known.values() if arch > ptx} if ptx else {})


def launches(version: str) -> tuple[Launch, ...]:
    """Return the known ``LAUNCHES`` of an ORT version; none for a version whose source was not read."""
    known = LAUNCHES if version in _READ else ()
    return tuple(launch for launch in known if version in launch.span)


def without_device_code(version: str) -> tuple[str, ...]:
    """Return the paths of an ORT version's CUDA sources without a kernel; none if its source was not read."""
    return NO_DEVICE_CODE if version in _READ else ()


def left_out(arches: Iterable[Arch], version: str) -> tuple[Launch, ...]:
    """Return the units that a full build does not compile: no architecture of the set launches their kernels.

    Their CMake options are ``OFF``; without them, nothing is left of these sources.
    """
    whole = tuple(arches)
    return tuple(launch for launch in launches(version) if launch.option and not launch.launched(whole))


def compiled_launches(arches: Iterable[Arch], version: str) -> Iterator[tuple[Launch, frozenset[Arch]]]:
    """Yield the known ``LAUNCHES`` of a full build, each with the architectures it is compiled for."""
    whole = frozenset(arches)
    skipped = left_out(whole, version)
    for launch in launches(version):
        if launch not in skipped:
            yield launch, launch.compiled(whole)


_TURING, _AMPERE, _HOPPER, _CONSUMER_BLACKWELL = 75, 80, 90, 120


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


def unit_sets(whole: Iterable[Arch], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units of a provider with contrib operators, that for the whole list first.

    ``whole``: the SASS of units for the whole list (``compiled``). Sets without architectures are left out.
    Two sets may have the same architectures; then it is unknown which of them a container belongs to.
    """
    every = frozenset(whole)
    parts = _parts(every, version) if SPLITS_UNITS.holds(version) else _launched_sets(every, version)
    return tuple(unit_set for unit_set in (UnitSet("whole list", every), *parts) if unit_set.sass)


def observed_unit_sets(containers: Iterable[frozenset[Arch]], version: str) -> tuple[UnitSet, ...]:
    """Return the sets of units that explain ``containers``, the widest of which has the whole list.

    Empty if all units are of one set, or the numbers of containers do not agree.
    """
    held = tuple(containers)
    widest = sorted(held, key=len)[-1:]
    return _if_counts_agree(unit_sets(widest[0] if widest else (), version), held)


def expected_unit_sets(
    sm: Sequence[Arch], version: str | None, containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """Return the sets of units for the requested set ``sm``.

    Empty if all units are of one set, the numbers of containers do not agree, the version is ``None`` or
    ORT's CMake refuses an architecture.
    """
    if version is None or refused(sm, version):
        return ()
    return _if_counts_agree(unit_sets(compiled(sm, version).sass, version), containers)


def _if_counts_agree(
    unit_sets: tuple[UnitSet, ...], containers: Iterable[frozenset[Arch]]
) -> tuple[UnitSet, ...]:
    """Return ``unit_sets`` if each part of the list is in as many containers as it has units; else ``()``.

    So a library whose units are all compiled for the whole list has to hold all of it, and a container too
    many or too few for a part is one that lost an architecture. If no number of units is known, nothing is
    compared.
    """
    wanted: Counter[frozenset[Arch]] = Counter()
    for unit_set in unit_sets[1:]:
        wanted[unit_set.sass] += unit_set.units or 0
    counts = Counter(containers)
    uncounted = all(unit_set.units is None for unit_set in unit_sets[1:])
    agree = uncounted or all(counts[part] == count for part, count in wanted.items())
    return unit_sets if len(unit_sets) > 1 and agree else ()


def explained_by(arches: Iterable[Arch], unit_sets: Sequence[UnitSet]) -> tuple[UnitSet, ...]:
    """Return the sets of units that are compiled for exactly ``arches``; empty where there is none.

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


def _parts(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    yield UnitSet("flash attention", _from(whole, _AMPERE))
    end = _CONSUMER_BLACKWELL if LLM_WITHOUT_120.holds(version) else 10_000
    yield UnitSet("LLM", _from(whole, _TURING, end))
    yield UnitSet("TMA for Hopper", frozenset({Arch(9, 0, "a")} if _from(whole, _HOPPER) else ()))
    yield UnitSet("TMA for Blackwell", _from(whole, _CONSUMER_BLACKWELL))


def _launched_sets(whole: frozenset[Arch], version: str) -> Iterator[UnitSet]:
    for launch, part in compiled_launches(whole, version):
        if part != whole:
            yield UnitSet(launch.name, part, launch.units, (launch.first, launch.last))


def _from(arches: frozenset[Arch], first: int, below: int = 10_000) -> frozenset[Arch]:
    return frozenset(arch for arch in arches if first <= arch.number < below)
