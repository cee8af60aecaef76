"""Which GPUs a library runs on, from its fatbin containers; and a package, from its libraries.

The unit is the container, for it is what the CUDA run time chooses an image from: a library of which one
translation unit lost an architecture must show it.

That holds for libraries that one compiler run made for one set, ORT's provider: 184 containers in 1.23.2,
all alike. NVIDIA's maths libraries are made of containers for one architecture each (measured, 12.9): of
the 3,015 in libcublasLt 1,154 hold only sm_100 and 868 only sm_90a and sm_120f; of the 1,370 in
libcudnn_engines_precompiled 396 hold only sm_100. The library itself chooses by device, so a container
without an image for a GPU is no gap. For these *specialised* libraries native means that at least one
container has SASS for the GPU, and JIT that every container can be run; some PTX (one container of 3,015 in
cuBLASLt has compute_52) proves nothing and is partial. What the weak half of that rule lets through,
leftovers in one cuDNN library, the worst of all libraries catches: libcudnn_ops, libcudnn_cnn and libcublas
carry the full set in nearly all of their containers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Iterable, Mapping, Optional, Sequence, Tuple

from builder.core.arch import Arch, Capability, jits_ptx, runs_sass
from builder.core.fatbin import Compression, Container, Kind

CAPABILITIES: Tuple[Capability, ...] = tuple(
    Capability.parse(text)
    for text in (
        *("5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0"),
        *("10.0", "10.3", "11.0", "12.0", "12.1"),
    )
)
"""Every compute capability from Maxwell to Blackwell. Source: NVIDIA's list of CUDA GPUs."""

OPAQUE: Mapping[str, str] = {
    "libcufft.so": ".nv_fatbin holds one sm_52 image; 24,453 more containers lie in .ldata",
    "libcufftw.so": ".nv_fatbin holds one sm_52 image; it forwards to libcufft",
}
"""Libraries whose ``.nv_fatbin`` says nothing about where they run, by name without version: the reason.

Measured on cuFFT 11.4.1.4. They are listed with what was found and left out of a package's capabilities.
cuBLASLt (469 containers) and libcudnn_engines_precompiled (110) also keep some in ``.cask_resource``, all
of them for 10.x and 12.x, which ``.nv_fatbin`` has as well: these two are not opaque.
"""

_BLACKWELL = 10


class Support(Enum):
    """How device code runs on a GPU, best first."""

    NATIVE = "native"
    JIT = "jit"
    """The driver compiles PTX at first use."""
    PARTIAL = "partial"
    """Some containers have nothing that runs."""
    NONE = "none"


_ORDER = tuple(Support)


@dataclass(frozen=True)
class LibraryCoverage:
    """The device code found in one library."""

    path: str
    containers: int
    sass: Tuple[Arch, ...]
    """Architectures with SASS in at least one container, sorted."""
    ptx: Tuple[Arch, ...]
    support: Mapping[Capability, Support]
    zstd: bool
    """Whether an image that a driver before Blackwell's would load is packed with zstd."""

    @property
    def opaque(self) -> bool:
        """Whether what was found says nothing about where the library runs."""
        name = self.path.rsplit("/", 1)[-1]
        return any(name.startswith(library) for library in OPAQUE)


def cover(path: str, containers: Sequence[Container], *, specialised: bool) -> Optional[LibraryCoverage]:
    """What one library's containers support; ``None`` when it has no device code.

    ``specialised``: a library of NVIDIA's, made of containers for one architecture each.
    """
    if not containers:
        return None
    return LibraryCoverage(
        path=path,
        containers=len(containers),
        sass=_found(containers, Kind.SASS),
        ptx=_found(containers, Kind.PTX),
        support={device: _support(containers, device, specialised) for device in CAPABILITIES},
        zstd=any(_is_old_zstd(container) for container in containers),
    )


def combine(libraries: Iterable[LibraryCoverage]) -> Mapping[Capability, Support]:
    """A package's support: for each capability the worst over its libraries, opaque ones left out.

    Without any library with device code it is none everywhere.
    """
    seen = [library for library in libraries if not library.opaque]
    return {
        device: max((library.support[device] for library in seen), key=_ORDER.index, default=Support.NONE)
        for device in CAPABILITIES
    }


def sass_everywhere(containers: Sequence[Container]) -> Tuple[Arch, ...]:
    """The architectures with SASS in every container, sorted."""
    sets = [container.arches(Kind.SASS) for container in containers]
    return tuple(sorted(frozenset.intersection(*sets))) if sets else ()


def lacking(containers: Iterable[Container], number: int) -> Tuple[Container, ...]:
    """The containers without SASS for ``number``, whatever its suffix: ``90a`` counts as ``90``."""
    return tuple(
        container
        for container in containers
        if number not in {arch.number for arch in container.arches(Kind.SASS)}
    )


def _found(containers: Iterable[Container], kind: Kind) -> Tuple[Arch, ...]:
    return tuple(sorted({arch for container in containers for arch in container.arches(kind)}))


def _support(containers: Sequence[Container], device: Capability, specialised: bool) -> Support:
    each = {_container_support(container, device) for container in containers}
    if each == {Support.NATIVE} or (specialised and Support.NATIVE in each):
        return Support.NATIVE
    if Support.NONE not in each:
        return Support.JIT
    return Support.NONE if each == {Support.NONE} else Support.PARTIAL


def _container_support(container: Container, device: Capability) -> Support:
    if any(runs_sass(arch, device) for arch in container.arches(Kind.SASS)):
        return Support.NATIVE
    if any(jits_ptx(arch, device) for arch in container.arches(Kind.PTX)):
        return Support.JIT
    return Support.NONE


def _is_old_zstd(container: Container) -> bool:
    """Blackwell's own images may be zstd at no cost: its drivers, 570 and newer, all read it."""
    return any(
        image.compression is Compression.ZSTD and image.arch.major < _BLACKWELL for image in container.images
    )
