"""This module computes the GPUs that a library, by its fatbin containers, and a package of libraries run on.

Support is judged container by container, because the CUDA runtime chooses one image from each container: a
library whose translation units do not all hold an architecture must show the gap.

For most libraries (ORT's provider: 184 containers in 1.23.2, all with the same architectures) native and JIT
require that every container has code for the GPU. NVIDIA's maths libraries hold many containers for only one
or two architectures each. Measured for CUDA 12.9: of the 2,078 containers with kernels in libcublasLt, 868
hold only sm_90a and sm_120f, and 414 only sm_100f; each of the 24,454 in libcufft holds one image. Such a
library selects its kernels by device itself, so a container without an image for a GPU is no gap. For these
*specialised* libraries, native means that at least one container has SASS for the GPU, and JIT that every
container can be run. PTX in some containers proves nothing (one container of 3,484 in cuBLASLt has
compute_52) and counts as partial. One container with leftover SASS is enough for native, which is a weak test
of a single library. But a package's support is the worst of its libraries, and libcudnn_ops, libcudnn_cnn and
libcublas hold the full set in nearly all of their containers.

LTO IR is input of a link that the library itself does at run time: cuFFT has 11,651 containers that hold only
LTO IR. These containers and those of units without a kernel (libcufftw's only container) have *nothing to
run*: they are counted and do not affect support.

Relocatable code is input of the device link that made the library; the link's output is judged. Where the
output has no code for a GPU, the driver compiles the PTX of all inputs and links the result again. That
counts as JIT if every input can be run, else as none (NVIDIA's manual of nvcc, "Implicit JIT Linking"). An
input of LTO IR alone (``nvcc -dlto``) cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import NamedTuple

from builder.binary.fatbin_format import LINK_INPUT, Container, Image, Kind
from builder.binary.library_names import ONNXRUNTIME, family_of, is_provider
from builder.binary.payloads import Compression
from builder.facts.gpu import compatibility
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.compatibility import jits_ptx, runs_sass
from builder.facts.gpu.table import DEVICES, GPUS, Gpu
from builder.facts.ort.units import UnitSet, if_counts_agree, meant_for

_BLACKWELL = 10


class Support(Enum):
    """Ways in which device code runs on a GPU, best first."""

    NATIVE = compatibility.NATIVE
    JIT = compatibility.JIT
    """The driver compiles PTX at first use."""
    PARTIAL = compatibility.PARTIAL
    """Some containers have no code that runs."""
    NONE = compatibility.NONE


_ORDER = tuple(Support)


@dataclass(frozen=True)
class ContainerTally:
    """The number of one library's containers that serve one capability, by how they serve it."""

    native: int
    """Containers with SASS that runs."""
    jit: int
    """Containers with PTX only that the driver can compile."""
    none: int
    """Containers without code that runs."""
    stubs: int = 0
    """Containers of ``native`` whose SASS for the capability is a stub: far smaller than for another GPU."""

    @property
    def total(self) -> int:
        """The number of containers that count for the capability."""
        return self.native + self.jit + self.none


class HeldCode(NamedTuple):
    """The code that one container holds: the architectures of its SASS and of its PTX."""

    sass: frozenset[Arch]
    ptx: frozenset[Arch]
    linked: bool = False
    """Whether a device link made the container."""
    stubs: frozenset[Arch] = frozenset()
    """Architectures of ``sass`` whose images are stubs, by their sizes (see ``_STUB``)."""
    broken: frozenset[tuple[Kind, Arch]] = frozenset()
    """Further images that differ from their headers. A driver takes them all the same, and fails."""


Counts = Mapping[str, Mapping[str, int]]
"""Numbers by kind of image and architecture: ``{"sass": {"90a": 184}}``."""


@dataclass(frozen=True, kw_only=True)
class DeviceCode:
    """The device code that was read in one library."""

    path: str
    sections: Mapping[str, int]
    """Numbers of containers by the name of their section; ``""`` is for containers outside all sections."""
    images: Mapping[str, Mapping[Kind, Mapping[Arch, int]]]
    """Numbers of images by section, kind and architecture, to compare with those of another reader."""
    sizes: Mapping[Kind, Mapping[Arch, int]]
    """Stored (packed) bytes of the images by kind and architecture."""
    isa: tuple[int, int] | None
    """The newest PTX ISA version of the library's PTX, ``(8, 8)``; ``None`` without PTX."""
    nothing_to_run: int
    """Number of containers with nothing to run, without ``link_inputs``."""
    link_inputs: int
    """Number of further containers that are inputs of a device link, whose output is judged instead."""
    unlinked: int
    """Number of containers of relocatable code that were not device-linked and so cannot be loaded."""
    specialised: bool
    zstd: bool
    """Whether an image for an architecture older than Blackwell is packed with zstd."""
    held: Mapping[HeldCode, int] = field(default_factory=dict)
    """Numbers of judged containers with something to run by the code that they hold: thousands of containers
    share a few dozen sets of architectures, so each set is judged only once."""
    held_by_inputs: frozenset[HeldCode] = frozenset()
    """The code in the inputs that the library's device links need; none for one of LTO IR alone, which no
    driver links."""
    unit_sets: tuple[UnitSet, ...] = ()
    """The sets of units in the library that are compiled for different architectures; see ``cover``."""


@dataclass(frozen=True, kw_only=True)
class LibraryCoverage(DeviceCode):
    """The device code in one library, and what follows from it (``coverage_of``).

    ``sass``, ``ptx`` and ``ltoir``: all architectures found, sorted.
    """

    containers: int
    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    ltoir: tuple[Arch, ...]
    unknown: int
    """Number of images of unknown kind (``Kind.OTHER``)."""
    single: int
    """Number of containers with SASS for one architecture and no PTX."""
    tally: Mapping[Capability, ContainerTally]
    """Numbers of the containers in ``held`` by how they serve each capability, without ``picked``."""
    picked: int = 0
    """Number of containers that are compiled for one or two architectures each, beside others (see
    ``_picked_by_device``)."""
    picked_for: frozenset[Capability] = frozenset()
    """The capabilities that one of these containers serves."""

    @property
    def support(self) -> Mapping[Capability, Support]:
        """The support of each capability, computed from its tally."""
        return {device: _support(tally, self.specialised) for device, tally in self.tally.items()}

    @property
    def runnable(self) -> bool:
        """Whether at least one container has something to run."""
        return self.nothing_to_run + self.link_inputs < self.containers


def is_specialised(path: str) -> bool:
    """Return whether a library is specialised: its family's code chooses a container by device."""
    family = family_of(path.rpartition("/")[2])
    return family is not None and family.specialised


def cover(
    path: str, containers: Sequence[Container], *, specialised: bool, unit_sets: Sequence[UnitSet] = ()
) -> LibraryCoverage | None:
    """Compute the coverage of one library from its containers; ``None`` when it has no device code.

    ``unit_sets`` are the library's sets of units that are compiled for different architectures, empty where
    all units are compiled for all of them. A container is no gap on a GPU for which its set is not compiled.
    """
    if not containers:
        return None
    units, inputs = _divided(containers)
    images = [image for container in containers for image in container.images]
    return coverage_of(
        DeviceCode(
            path=path,
            sections=Counter(container.section for container in containers),
            images=_images(containers),
            sizes=_sizes(images),
            isa=max((one.isa for one in images if one.kind is Kind.PTX), default=None),
            nothing_to_run=sum(not container.runnable for container in units),
            link_inputs=len(inputs),
            unlinked=sum(container.section == LINK_INPUT for container in units),
            specialised=specialised,
            zstd=any(_is_old_zstd(one) for one in images),
            held=Counter(_held(container) for container in units if container.runnable),
            held_by_inputs=frozenset(_held(one) for one in inputs if one.runnable or one.arches(Kind.LTOIR)),
            unit_sets=tuple(unit_sets),
        )
    )


def as_stated(library: LibraryCoverage | None, unit_sets: Sequence[UnitSet] | None) -> LibraryCoverage | None:
    """Return the coverage of a provider by the sets of units that its build states, if these explain it.

    Any other coverage stays as it is.
    """
    if library is None or unit_sets is None or not is_provider(library.path):
        return library
    containers = (held.sass for held, count in library.held.items() for _ in range(count))
    code = {field.name: getattr(library, field.name) for field in fields(DeviceCode)}
    return coverage_of(DeviceCode(**code | {"unit_sets": if_counts_agree(unit_sets, containers)}))


def coverage_of(code: DeviceCode) -> LibraryCoverage:
    """Return the coverage of the library with this code."""
    picked = _picked_by_device(code)
    own = {held: count for held, count in code.held.items() if held not in picked}
    if picked and not own:
        code, own, picked = replace(code, specialised=True), dict(code.held), frozenset()
    return LibraryCoverage(
        **vars(code),
        containers=sum(code.sections.values()),
        sass=_architectures_of(code, Kind.SASS),
        ptx=_architectures_of(code, Kind.PTX),
        ltoir=_architectures_of(code, Kind.LTOIR),
        unknown=sum(sum(kinds.get(Kind.OTHER, {}).values()) for kinds in code.images.values()),
        single=sum(count for held, count in code.held.items() if len(held.sass) == 1 and not held.ptx),
        tally={device: _tally(code, own, device) for device in DEVICES},
        picked=sum(code.held[held] for held in picked),
        picked_for=frozenset(
            device for device in DEVICES for held in picked if _support_of_held(held, device) in _RUNS
        ),
    )


_RUNS = (Support.NATIVE, Support.JIT)

_MOST_PICKED, _LEAST_PICKED, _MANY = 2, 8, 20
"""Containers of one or two architectures are picked by device if there are eight of them, and more than a
twentieth of all. Measured: 22 of 251 in mxnet-cu80 1.5.0, which has cuDNN inside."""


def _picked_by_device(code: DeviceCode) -> frozenset[HeldCode]:
    """Return the code in containers among which the library picks one by device.

    NVIDIA's libraries are compiled so, and whatever has them linked in: each such container holds SASS of one
    or two architectures, or PTX of the newest alone, and no architecture is in all of them. An application's
    own containers hold the whole set for which it is compiled. A specialised library is all of this kind.
    ONNX Runtime's own libraries are compiled for one set, so such a container is a gap in them.
    """
    small = [held for held in code.held if (held.sass and not held.ptx) or (held.ptx and not held.sass)]
    small = [held for held in small if len(held.sass | held.ptx) <= _MOST_PICKED]
    count = sum(code.held[held] for held in small)
    enough = count >= _LEAST_PICKED and count * _MANY > sum(code.held.values())
    family = family_of(code.path.rpartition("/")[2])
    if code.specialised or not enough or (family and family.vendor == ONNXRUNTIME):
        return frozenset()
    common = frozenset.intersection(*(held.sass | held.ptx for held in small))
    return frozenset() if common else frozenset(small)


def counts_of(kinds: Mapping[Kind, Mapping[Arch, int]]) -> Counts:
    """Return numbers by kind and architecture with JSON's types, architectures sorted."""
    return {
        kind.value: {str(arch): count for arch, count in sorted(arches.items())}
        for kind, arches in kinds.items()
    }


def combine(libraries: Iterable[LibraryCoverage]) -> Mapping[Capability, Support]:
    """Return a package's support of each capability: the worst among its libraries with something to run.

    Without such a library, each support is ``NONE``. The keys are the capabilities of the GPUs that
    ``columns`` returns.
    """
    runnable = [library for library in libraries if library.runnable]
    supports = [library.support for library in runnable]
    return {
        gpu.capability: worst(support[gpu.capability] for support in supports) for gpu in columns(runnable)
    }


def worst(supports: Iterable[Support]) -> Support:
    """Return the worst of ``supports``; ``Support.NONE`` for an empty argument."""
    return max(supports, key=_ORDER.index, default=Support.NONE)


def columns(libraries: Iterable[LibraryCoverage]) -> tuple[Gpu, ...]:
    """Return the GPUs that a report on these libraries covers, by capability.

    These are the GPUs of NVIDIA's list, and each other GPU whose own architecture one of the libraries holds.
    """
    held = {arch.number for library in libraries for arch in (*library.sass, *library.ptx)}
    return tuple(gpu for gpu in GPUS if gpu.listed or (gpu.capability in DEVICES and gpu.number in held))


def sass_everywhere(containers: Sequence[Container]) -> tuple[Arch, ...]:
    """Return the architectures with SASS in every container, sorted."""
    sets = [container.arches(Kind.SASS) for container in containers]
    return tuple(sorted(frozenset.intersection(*sets))) if sets else ()


def promised_by(arch: Arch, *, widen: bool = False) -> tuple[Capability, ...]:
    """Return the capabilities that code for ``arch`` of a set must run on: its own, with ``f`` its family's.

    ``sm_120`` does not promise 12.1, although its code runs there: ORT's CMake changes ``120`` to ``120a``,
    whose code does not. With ``widen`` (a variant that is widened) each capability that the code runs on is
    promised. A GPU that NVIDIA does not list is promised by its own architecture only.
    """
    gpus = [gpu for gpu in GPUS if gpu.capability in DEVICES and (gpu.listed or gpu.number == arch.number)]
    runs_on = tuple(gpu.capability for gpu in gpus if runs_sass(arch, gpu.capability))
    return runs_on if widen or arch.suffix == "f" else runs_on[:1]


def lacking(containers: Iterable[Container], arch: Arch, *, widen: bool) -> tuple[Container, ...]:
    """Return the containers without SASS for ``arch``.

    A container has it if one of its images has the architecture's number, and each capability that ``arch``
    promises can run one of its images. So ``120a`` suffices for ``120`` but not for ``120f``, and ``90`` for
    ``90a``. With ``widen``, ``120`` needs ``120a`` and ``121`` together.
    """
    devices = promised_by(arch, widen=widen)
    return tuple(
        container for container in containers if not _has(container.arches(Kind.SASS), arch, devices)
    )


def _has(arches: frozenset[Arch], wanted: Arch, devices: Iterable[Capability]) -> bool:
    return wanted.number in {arch.number for arch in arches} and all(
        any(runs_sass(arch, device) for arch in arches) for device in devices
    )


def _images(containers: Iterable[Container]) -> Mapping[str, Mapping[Kind, Mapping[Arch, int]]]:
    counts: dict[str, dict[Kind, Counter[Arch]]] = {}
    for container in containers:
        kinds = counts.setdefault(container.section, {})
        for image in container.images:
            kinds.setdefault(image.kind, Counter())[image.arch] += 1
    return counts


def _sizes(images: Iterable[Image]) -> Mapping[Kind, Mapping[Arch, int]]:
    sizes: dict[Kind, Counter[Arch]] = {}
    for image in images:
        sizes.setdefault(image.kind, Counter())[image.arch] += image.size
    return sizes


def _architectures_of(code: DeviceCode, kind: Kind) -> tuple[Arch, ...]:
    return tuple(sorted({arch for kinds in code.images.values() for arch in kinds.get(kind, ())}))


_STUB = 16
"""An image is a stub if 16 times its unpacked size is below that of its container's largest SASS image."""


def _divided(containers: Sequence[Container]) -> tuple[list[Container], list[Container]]:
    """Return the judged containers and the inputs of device links; without a device link all are judged."""
    linked = any(container.linked for container in containers)
    inputs = [one for one in containers if linked and one.section == LINK_INPUT]
    return [one for one in containers if not linked or one.section != LINK_INPUT], inputs


def _held(container: Container) -> HeldCode:
    sass, ptx = container.arches(Kind.SASS), container.arches(Kind.PTX)
    return HeldCode(sass, ptx, container.linked, _stubs(container), container.broken)


def _stubs(container: Container) -> frozenset[Arch]:
    if len(container.images) == 1:
        return frozenset()
    sizes = [(image.unpacked_size, image.arch) for image in container.images if image.kind is Kind.SASS]
    largest = max((size for size, _arch in sizes), default=0)
    return frozenset(arch for size, arch in sizes if size * _STUB < largest)


def _tally(code: DeviceCode, own: Mapping[HeldCode, int], device: Capability) -> ContainerTally:
    counts: Counter[Support] = Counter()
    stubs, sets, arch = 0, code.unit_sets, Arch(device.major, device.minor)
    linkable = all(_support_of_held(held, device) is not Support.NONE for held in code.held_by_inputs)
    for held, count in own.items():
        served = _support_of_held(held, device)
        if served is Support.NONE and held.linked and linkable:
            served = Support.JIT
        if served is Support.NATIVE and not any(runs_sass(arch, device) for arch in held.sass - held.stubs):
            stubs += count
        if served is not Support.NONE or not sets or meant_for(arch, sets, held.sass):
            counts[served] += count
    return ContainerTally(counts[Support.NATIVE], counts[Support.JIT], counts[Support.NONE], stubs)


def _support_of_held(code: HeldCode, device: Capability) -> Support:
    """Return how the image runs that a driver takes for ``device``: of those that fit, the highest."""
    for kind, whole, runs, support in (
        (Kind.SASS, code.sass, runs_sass, Support.NATIVE),
        (Kind.PTX, code.ptx, jits_ptx, Support.JIT),
    ):
        held = (*whole, *(arch for of, arch in code.broken if of is kind))
        fitting = [arch for arch in held if runs(arch, device)]
        if fitting:
            taken = max(fitting, key=lambda arch: (arch.number, arch.suffix))
            return support if taken in whole else Support.NONE
    return Support.NONE


def _support(tally: ContainerTally, specialised: bool) -> Support:
    if tally.native and (specialised or tally.native == tally.total):
        return Support.NATIVE
    if not tally.native and not tally.jit:
        return Support.NONE
    return Support.PARTIAL if tally.none else Support.JIT


def _is_old_zstd(image: Image) -> bool:
    """Return whether an image for an architecture older than Blackwell is packed with zstd.

    Images for Blackwell do not count: each driver that runs them, 570 or newer, reads zstd.
    """
    return image.compression is Compression.ZSTD and image.arch.major < _BLACKWELL
