"""Which GPUs a library runs on, from its fatbin containers; and a package, from its libraries.

The unit is the container, for it is what the CUDA run time chooses an image from: a library of which one
translation unit lost an architecture must show it.

That holds for libraries that one compiler run made for one set, ORT's provider: 184 containers in 1.23.2,
all alike. NVIDIA's maths libraries are made of containers for one architecture each (measured, 12.9): of
the 2,078 with kernels in libcublasLt 868 hold only sm_90a and sm_120f and 414 only sm_100f; of the 24,454
in libcufft each holds one image. The library itself chooses by device, so a container without an image for
a GPU is no gap. For these *specialised* libraries native means that at least one container has SASS for the
GPU, and JIT that every container can be run; some PTX (one container of 3,484 in cuBLASLt has compute_52)
proves nothing and is partial. What the weak half of that rule lets through, leftovers in one cuDNN library,
the worst of all libraries catches: libcudnn_ops, libcudnn_cnn and libcublas carry the full set in nearly all
of their containers.

LTO IR is input of a link at run time, which the library does itself: cuFFT has 11,651 containers with nothing
else. These and the units without a kernel, libcufftw's only one, have *nothing to run*: they are counted and
change no support.

Relocatable code is input of a device link, made when the library was: what the link made is judged. Where
that has nothing for a GPU the driver compiles the PTX of all inputs and links them again, so this is JIT if
every input can be run, and nothing else (NVIDIA's manual of nvcc, "Implicit JIT Linking").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from builder.binary.fatbin_format import LINK_INPUT, Container, Kind
from builder.binary.library_names import family_of
from builder.binary.payloads.payload_bytes import Compression
from builder.gpu.architectures import Arch, Capability
from builder.gpu.compatibility import jits_ptx, runs_sass
from builder.gpu.table import DEVICES, GPUS, Gpu
from builder.onnxruntime.units import UnitSet, meant_for

_BLACKWELL = 10


class Support(Enum):
    """The ways in which device code runs on a GPU, best first."""

    NATIVE = "native"
    JIT = "jit"
    """The driver compiles PTX at first use."""
    PARTIAL = "partial"
    """Some containers have nothing that runs."""
    NONE = "none"


_ORDER = tuple(Support)


@dataclass(frozen=True)
class ContainerTally:
    """The number of one library's containers that serve one capability, by how they serve it."""

    native: int
    """Containers with SASS that runs."""
    jit: int
    """Containers with PTX only that the driver can compile."""
    none: int
    """Containers with nothing that runs."""
    stubs: int = 0
    """Of ``native``, those that hold far less for it than for another GPU."""

    @property
    def total(self) -> int:
        """All containers but those with nothing to run."""
        return self.native + self.jit + self.none


class HeldCode(NamedTuple):
    """What one container holds: the architectures of its SASS and of its PTX."""

    sass: frozenset[Arch]
    ptx: frozenset[Arch]
    linked: bool = False
    """Whether a device link made it."""
    stubs: frozenset[Arch] = frozenset()
    """Of ``sass``, those for which it holds next to nothing."""


@dataclass(frozen=True)
class LibraryCoverage:
    """The device code found in one library. Architectures are those of at least one container, sorted."""

    path: str
    containers: int
    sections: Mapping[str, int]
    """Containers by the section they lie in, ``""`` outside of any."""
    images: Mapping[str, Mapping[Kind, Mapping[Arch, int]]]
    """Images by section, kind and architecture: what another reader's counts can be compared with."""
    sizes: Mapping[Kind, Mapping[Arch, int]]
    """Bytes of the images by kind and architecture, as they are stored."""
    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    ltoir: tuple[Arch, ...]
    isa: tuple[int, int] | None
    """The newest version of PTX's instruction set that its PTX is of."""
    unknown: int
    """Images of a kind that nobody knows."""
    nothing_to_run: int
    """Containers with nothing to run in them."""
    link_inputs: int
    """Further containers that a device link took as its input: what it made of them is judged."""
    unlinked: int
    """Containers of relocatable code that no device link took: nobody can load them."""
    single: int
    """Containers with SASS for one architecture and nothing else."""
    specialised: bool
    tally: Mapping[Capability, ContainerTally]
    zstd: bool
    """Whether an image that a driver before Blackwell's would load is packed with zstd."""
    held: Mapping[HeldCode, int] = field(default_factory=dict)
    """The containers that are judged, by what they hold: all that ``tally`` was computed from."""
    held_by_inputs: frozenset[HeldCode] = frozenset()
    """What the inputs of its device links hold."""
    unit_sets: tuple[UnitSet, ...] = ()
    """``kinds`` as ``cover`` was given them."""

    @property
    def support(self) -> Mapping[Capability, Support]:
        """The support of each capability, judged from its tally."""
        return {device: _support(tally, self.specialised) for device, tally in self.tally.items()}

    @property
    def runnable(self) -> bool:
        """Whether there is anything in it to run."""
        return self.nothing_to_run + self.link_inputs < self.containers


def is_specialised(path: str) -> bool:
    """Whether a library is one of NVIDIA's that are made of containers for one architecture each."""
    family = family_of(path.rpartition("/")[2])
    return family is not None and family.specialised


def cover(
    path: str, containers: Sequence[Container], *, specialised: bool, kinds: Sequence[UnitSet] = ()
) -> LibraryCoverage | None:
    """Compute the coverage of one library from its containers; ``None`` when it has no device code.

    ``kinds``: its units by what they are compiled for, where that is not the whole list for all of them: then
    a container that was not meant for a GPU is no gap.
    """
    if not containers:
        return None
    judged, inputs = _divided(containers)
    alike, again = _alike(judged), _alike(inputs)
    images = _images(containers)
    return LibraryCoverage(
        path=path,
        containers=len(containers),
        sections=Counter(container.section for container in containers),
        images=images,
        sizes=_sizes(containers),
        sass=_found(images, Kind.SASS),
        ptx=_found(images, Kind.PTX),
        ltoir=_found(images, Kind.LTOIR),
        isa=max(_isas(containers), default=None),
        unknown=sum(sum(kinds_of.get(Kind.OTHER, {}).values()) for kinds_of in images.values()),
        nothing_to_run=sum(not container.runnable for container in judged),
        link_inputs=len(inputs),
        unlinked=sum(container.section == LINK_INPUT for container in judged),
        single=single(alike),
        specialised=specialised,
        tally=tallies(alike, again, kinds),
        zstd=any(_is_old_zstd(container) for container in containers),
        held=alike,
        held_by_inputs=frozenset(again),
        unit_sets=tuple(kinds),
    )


def tallies(
    held: Mapping[HeldCode, int], held_by_inputs: Iterable[HeldCode], kinds: Sequence[UnitSet] = ()
) -> Mapping[Capability, ContainerTally]:
    """How containers serve each capability; ``kinds`` as for ``cover``."""
    inputs = frozenset(held_by_inputs)
    return {device: _tally(held, inputs, device, kinds) for device in DEVICES}


def combine(libraries: Iterable[LibraryCoverage]) -> Mapping[Capability, Support]:
    """A package's support: for each capability the worst over its libraries with something to run.

    Without any such library it is none everywhere. The capabilities are those of ``columns``.
    """
    runnable = [library for library in libraries if library.runnable]
    found = [library.support for library in runnable]
    return {gpu.device: worst(support[gpu.device] for support in found) for gpu in columns(runnable)}


def worst(supports: Iterable[Support]) -> Support:
    """The worst of several; none of none."""
    return max(supports, key=_ORDER.index, default=Support.NONE)


def columns(libraries: Iterable[LibraryCoverage]) -> tuple[Gpu, ...]:
    """The GPUs that a report of these libraries tells of, by capability.

    Those of NVIDIA's list, and of the others each whose own architecture one of the libraries holds.
    """
    held = {arch.number for library in libraries for arch in (*library.sass, *library.ptx)}
    return tuple(gpu for gpu in GPUS if gpu.listed or (gpu.device in DEVICES and gpu.number in held))


def sass_everywhere(containers: Sequence[Container]) -> tuple[Arch, ...]:
    """The architectures with SASS in every container, sorted."""
    sets = [container.arches(Kind.SASS) for container in containers]
    return tuple(sorted(frozenset.intersection(*sets))) if sets else ()


def promised_by(arch: Arch, *, widen: bool = False) -> tuple[Capability, ...]:
    """The capabilities that code for an architecture of a set must run on: its own, for ``f`` its family's.

    That ``sm_120`` runs on 12.1 too is no promise: ORT's CMake makes ``120a`` of it, which does not. For a
    variant that is to be widened (``onnxruntime.widening``) it is one. A GPU that NVIDIA does not list is
    promised by its own architecture only.
    """
    gpus = [gpu for gpu in GPUS if gpu.device in DEVICES and (gpu.listed or gpu.number == arch.number)]
    runs_on = tuple(gpu.device for gpu in gpus if runs_sass(arch, gpu.device))
    return runs_on if widen or arch.suffix == "f" else runs_on[:1]


def lacking(containers: Iterable[Container], arch: Arch, *, widen: bool) -> tuple[Container, ...]:
    """The containers without SASS for ``arch``: none of its number, or none that runs where it promises to.

    So ``120a`` stands for ``120`` and not for ``120f``, and ``90`` for ``90a``. Where ``widen``, ``120a`` and
    ``121`` together stand for ``120``.
    """
    devices = promised_by(arch, widen=widen)
    return tuple(one for one in containers if not _has(one.arches(Kind.SASS), arch, devices))


def _has(found: frozenset[Arch], wanted: Arch, devices: Iterable[Capability]) -> bool:
    return wanted.number in {arch.number for arch in found} and all(
        any(runs_sass(arch, device) for arch in found) for device in devices
    )


def _images(containers: Iterable[Container]) -> Mapping[str, Mapping[Kind, Mapping[Arch, int]]]:
    counts: dict[str, dict[Kind, Counter[Arch]]] = {}
    for container in containers:
        kinds = counts.setdefault(container.section, {})
        for image in container.images:
            kinds.setdefault(image.kind, Counter())[image.arch] += 1
    return counts


def _sizes(containers: Iterable[Container]) -> Mapping[Kind, Mapping[Arch, int]]:
    sizes: dict[Kind, Counter[Arch]] = {}
    for image in (image for container in containers for image in container.images):
        sizes.setdefault(image.kind, Counter())[image.arch] += image.size
    return sizes


def _isas(containers: Iterable[Container]) -> Iterator[tuple[int, int]]:
    return (image.isa for container in containers for image in container.images if image.kind is Kind.PTX)


def _found(images: Mapping[str, Mapping[Kind, Mapping[Arch, int]]], kind: Kind) -> tuple[Arch, ...]:
    return tuple(sorted({arch for kinds in images.values() for arch in kinds.get(kind, ())}))


def single(held: Mapping[HeldCode, int]) -> int:
    """The number of containers with SASS for one architecture and nothing else."""
    return sum(count for code, count in held.items() if len(code.sass) == 1 and not code.ptx)


_STUB = 16
"""A stub's image has less than a part of so many of what the container holds for another architecture."""


def _divided(containers: Sequence[Container]) -> tuple[list[Container], list[Container]]:
    """The containers that are judged, and the inputs of device links; without a link all are judged."""
    linked = any(container.linked for container in containers)
    inputs = [one for one in containers if linked and one.section == LINK_INPUT]
    return [one for one in containers if not linked or one.section != LINK_INPUT], inputs


def _alike(containers: Iterable[Container]) -> Counter[HeldCode]:
    """Thousands of containers share a few dozen sets of architectures: each set is judged once."""
    return Counter(
        HeldCode(container.arches(Kind.SASS), container.arches(Kind.PTX), container.linked, _stubs(container))
        for container in containers
        if container.runnable
    )


def _stubs(container: Container) -> frozenset[Arch]:
    if len(container.images) == 1:
        return frozenset()
    sizes = [(one.unpacked_size, one.arch) for one in container.images if one.kind is Kind.SASS]
    largest = max((size for size, _arch in sizes), default=0)
    return frozenset(arch for size, arch in sizes if size * _STUB < largest)


def _tally(
    alike: Mapping[HeldCode, int], again: Iterable[HeldCode], device: Capability, kinds: Sequence[UnitSet]
) -> ContainerTally:
    counts: Counter[Support] = Counter()
    stubs = 0
    linkable = all(_served(code, device) is not Support.NONE for code in again)
    for code, count in alike.items():
        served = _served(code, device)
        if served is Support.NONE and code.linked and linkable:
            served = Support.JIT
        if served is Support.NATIVE and not any(runs_sass(arch, device) for arch in code.sass - code.stubs):
            stubs += count
        if served is not Support.NONE or not kinds or meant_for(_arch_of(device), kinds, code.sass):
            counts[served] += count
    return ContainerTally(counts[Support.NATIVE], counts[Support.JIT], counts[Support.NONE], stubs)


def _arch_of(device: Capability) -> Arch:
    return Arch(device.major, device.minor)


def _served(code: HeldCode, device: Capability) -> Support:
    if any(runs_sass(arch, device) for arch in code.sass):
        return Support.NATIVE
    return Support.JIT if any(jits_ptx(arch, device) for arch in code.ptx) else Support.NONE


def _support(tally: ContainerTally, specialised: bool) -> Support:
    if tally.native and (specialised or tally.native == tally.total):
        return Support.NATIVE
    if not tally.native and not tally.jit:
        return Support.NONE
    return Support.PARTIAL if tally.none else Support.JIT


def _is_old_zstd(container: Container) -> bool:
    """Blackwell's own images may be zstd at no cost: its drivers, 570 and newer, all read it."""
    return any(
        image.compression is Compression.ZSTD and image.arch.major < _BLACKWELL for image in container.images
    )
