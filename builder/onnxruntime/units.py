"""Which architectures of a list each compile unit of the CUDA provider is for, and so its container holds.

Official builds up to 1.26 compile every unit for the whole list. From 1.27 on (``versions.SPLITS_UNITS``)
some are for part of it: a container without an architecture of the set may be just what was meant. Counted in
the official wheels: 1.21.0 and 1.23.2 have 155 and 184 containers, all alike; 1.31.1, whose list is 75 80 86
89 90a 120a, has 217 with all six, 91 without 75, 292 with 90a alone and 9 with 120a alone.

Our own full builds of 1.21.0 leave out what nobody can run. ORT's CMake compiles each unit for the whole
list, and the host code of some refuses most of it: flash attention asks for 8.x or 9.0 before it launches
anything. Lines are those of 1.21.0's source, which was read whole; of other releases nothing is left out.
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
    """Units whose kernels are launched on a range of architectures only."""

    name: str
    path: str
    """What the paths of these units' sources below ``onnxruntime/`` begin with."""
    units: int
    """How many units that is, each of them one fatbin container."""
    first: int
    """The oldest device, by its capability without the point: ``80``."""
    last: int
    """The newest one."""
    source: str
    """Where ORT decides so."""
    option: str = ""
    """The CMake option without which ORT compiles none of it."""
    shared: Mapping[int, int] = field(default_factory=dict)
    """Architectures that share an older one's PTX besides those that all units share, by their numbers."""
    served: Mapping[int, int] = field(default_factory=dict)
    """Architectures whose devices run an older one's SASS where the set has that, by their numbers."""

    def launched(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Those of ``arches`` that the kernels are launched on."""
        return frozenset(arch for arch in arches if self.first <= arch.number <= self.last)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Those of ``arches`` that the units are compiled for: one where nothing is launched.

        A unit cannot be compiled for none, and its host code is linked.
        """
        whole = sorted(arches)
        plain = {arch.number for arch in whole if not arch.suffix}
        made = {
            arch for arch in self.launched(whole) if arch.suffix or self.served.get(arch.number) not in plain
        }
        return frozenset(made or whole[:1])


_MEMORY_EFFICIENT = f"{_ATTENTION}cutlass_fmha/memory_efficient_attention.cu line 13"

_FLASH_PTX: Mapping[int, int] = {90: 89}
"""nvcc 12.4's PTX for 80, 86, 89 and 90 is the same text but for ``.target``: compared for head size 32."""

_FLASH_SASS: Mapping[int, int] = {86: 80}
"""SASS for 8.0 runs on 8.6 (CUDA C++ Programming Guide, "Binary Compatibility"), made from the same PTX.
FlashAttention's own wheels have no other for 8.x: setup.py of Dao-AILab/flash-attention at 0029136."""

LAUNCHES: tuple[Launch, ...] = (
    Launch(
        *("flash attention", f"{_ATTENTION}flash_attention/flash_fwd_", 32, 80, 90),
        f"{_ATTENTION}flash_attention/flash_api.cc line 413",
        "onnxruntime_USE_FLASH_ATTENTION",
        _FLASH_PTX,
        _FLASH_SASS,
    ),
    Launch(
        *("lean attention", f"{_ATTENTION}lean_attention/lean_fwd_", 2, 80, 90),
        f"{_ATTENTION}lean_attention/lean_api.cc line 256",
        "onnxruntime_USE_LEAN_ATTENTION",
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
"""CUDA units without a kernel, by the path of their source: the C++ compiler takes them. This one calls
cuDNN's front end, a header of 10,000 lines that nvcc reads once more for each architecture (458 CPU s for
five, 4 GB)."""


_SHARED_PTX: Mapping[int, int] = {52: 50, 61: 60}
"""Architectures whose SASS is made from the PTX of an older one, by their numbers.

nvcc reads a unit and makes PTX once for both, then SASS for each (``code=[sm_50,sm_52]``; NVIDIA's manual of
nvcc, "Two-Staged Compilation"). In ORT 1.21.0, CUTLASS 3.5.1 and CUDA 12.4's headers no ``__CUDA_ARCH__`` is
compared with anything from 501 to 520; from 601 to 610 ask dp4a, which ORT calls in
``qordered_layer_norm_impl.cu`` alone, an operator that needs sm_75, and cuRAND's MRG32k3a, which ORT does not
use. CUB's block sizes for 5.0 and 6.0 then serve 5.2 and 6.1 too.
"""


def shared_ptx(sm: Iterable[Arch], version: str, launch: Launch | None = None) -> Mapping[Arch, Arch]:
    """The architectures of a set that share another's PTX, in all units or in those of ``launch``."""
    known = {arch.number: arch for arch in sm if not arch.suffix} if version in _READ else {}
    numbers = {**_SHARED_PTX, **(launch.shared if launch else {})}
    return {known[new]: known[old] for new, old in numbers.items() if new in known and old in known}


def launches(version: str) -> tuple[Launch, ...]:
    """What is known of an ORT version; nothing of those whose dispatch was not read."""
    return LAUNCHES if version in _READ else ()


def without_device_code(version: str) -> tuple[str, ...]:
    """The CUDA units of an ORT version that hold no kernel."""
    return NO_DEVICE_CODE if version in _READ else ()


def unused_options(arches: Iterable[Arch], version: str) -> frozenset[str]:
    """The CMake options of a full build whose code no architecture of the set would launch."""
    whole = tuple(arches)
    return frozenset(
        launch.option for launch in launches(version) if launch.option and not launch.launched(whole)
    )


def narrowed(arches: Iterable[Arch], version: str) -> tuple[tuple[Launch, frozenset[Arch]], ...]:
    """The units that are compiled for less than the whole set, and what they are compiled for."""
    whole = frozenset(arches)
    skipped = unused_options(whole, version)
    parts = ((launch, launch.compiled(whole)) for launch in launches(version) if launch.option not in skipped)
    return tuple((launch, part) for launch, part in parts if part != whole)


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
    below = _CONSUMER_BLACKWELL if LLM_WITHOUT_120.holds(version) else 10_000
    return lambda number: _TURING <= number < below


def _those(arches: frozenset[Arch], wanted: Callable[[int], bool]) -> frozenset[Arch]:
    return frozenset(arch for arch in arches if wanted(arch.number))
