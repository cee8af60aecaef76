"""``variants.yaml`` as values: what is built, from what, for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Mapping, Optional, Tuple

from builder.core.arch import Arch
from builder.core.checks import Severity
from builder.core.inputs import Input
from builder.core.providers import CUDA, LINUX

GENERATIONS: Mapping[str, Tuple[int, ...]] = {
    "Maxwell": (50, 52, 53),
    "Pascal": (60, 61, 62),
    "Volta": (70, 72),
    "Turing": (75,),
    "Ampere": (80, 86, 87, 88),
    "Ada": (89,),
    "Hopper": (90,),
    "Blackwell": (100, 101, 103, 110, 120, 121),
}
"""GPU generations by the numbers of their architectures, oldest first. Source: NVIDIA's page "CUDA GPU
Compute Capability" and its legacy counterpart; ``nvcc --help`` of 12.9 and 13.0 for the embedded parts."""


NO_BASE = "none"
"""``BuildPlan.base`` of a package that nothing is compiled for."""


class Origin(Enum):
    """Where a variant's ORT libraries come from."""

    AUTO = "auto"
    """Wheel where it holds native SASS for each sm of the set, else source."""
    WHEEL = "wheel"
    SOURCE = "source"


class Profile(Enum):
    """How much of ORT is compiled."""

    FULL = "full"
    """As the official build."""
    LEAN = "lean"
    """No contrib ops, no flash attention."""
    MINIMAL = "minimal"
    """The CUDA EP's frame only: for tests, no product."""


class Host(Enum):
    """Where the host library ``libonnxruntime.so.1`` comes from when the provider is compiled."""

    WHEEL = "wheel"
    SOURCE = "source"


class Preset(Enum):
    """How hard an archive is compressed."""

    FAST = "fast"
    SMALL = "small"


class Layout(Enum):
    """What of a package travels in its archive."""

    FULL = "full"
    """Everything: works offline."""
    THIN = "thin"
    """All but NVIDIA's libraries, which the client takes from NVIDIA's own wheels."""


class Form(Enum):
    """The kind of an archive; the value is the end of its file name."""

    ZST = ".tar.zst"
    GZ = ".tar.gz"
    """For clients that cannot read zstd."""


class Oversize(Enum):
    """What happens to an archive that is larger than its budget."""

    REFUSE = "refuse"
    SPLIT = "split"
    """It is cut into parts of at most the budget, with a file that says how they join."""


@dataclass(frozen=True)
class OnnxRuntime:
    """The ``onnxruntime`` section: how ORT is made by default."""

    version: str
    """The version of the wheels that ``--mixed`` repacks; a package without it has its base's."""
    origin: Origin
    host: Host
    profile: Profile
    tensorrt: bool
    """Whether packages hold the official TensorRT provider too; TensorRT itself is the user's to bring."""


@dataclass(frozen=True)
class Cuda:
    """The ``cuda`` section: toolkit version ``12.9`` and NVIDIA's wheels by role (``cublas`` ...)."""

    version: str
    libraries: Mapping[str, Input]


@dataclass(frozen=True)
class Cudnn:
    """The ``cudnn`` section."""

    version: str
    wheel: Input


@dataclass(frozen=True)
class NvidiaBase:
    """The release base: NVIDIA's own devel image, ORT's source by git tag."""

    image: Input
    runtime: Input
    """The image without any of CUDA that packages are tried in and runtime images start from."""
    source: Input
    ort_version: str
    packages: Tuple[str, ...]
    wheels: Mapping[str, Input]
    """Build tools by role (``cmake``)."""
    patches: Tuple[str, ...]
    """Paths of patches to ORT's source, applied in this order."""


@dataclass(frozen=True)
class AssembledBase:
    """The base for places without Docker Hub: Debian, tools from Debian and PyPI, sources from Debian."""

    suite: str
    packages: Tuple[str, ...]
    nvcc: str
    """Version of nvcc, ``12.4``: decides which sm can be compiled."""
    ort_version: str
    source: Input
    """ORT's source tarball."""
    debs: Mapping[str, Input]
    """Debian binary packages by role (``nvcc``, ``mp11``, ``gsl``, ``safeint``, ``ort_headers``)."""
    sources: Mapping[str, Input]
    """ORT's dependencies as source tarballs by FetchContent name (``abseil_cpp`` ...)."""
    wheels: Mapping[str, Input]
    """Toolchain wheels by role (``nvcc``, ``ptxas``, ``cudart``, ``cccl``, ``cusparse``, ``cutlass``,
    ``cudnn_frontend``, ``cmake``)."""
    patches: Tuple[str, ...]
    """Paths of patches to ORT's source, applied in this order."""

    @property
    def ptxas(self) -> str:
        """Version of the ptxas that assembles what nvcc does not know, ``12.9.86``."""
        return self.wheels["ptxas"].spec.rpartition("==")[2]


@dataclass(frozen=True)
class Bases:
    """The two bases a variant can be compiled on."""

    nvidia: NvidiaBase
    assembled: AssembledBase

    def ort_version(self, base: str) -> str:
        """The ORT version of every package that is made on the base of this name."""
        return self.nvidia.ort_version if base == "nvidia" else self.assembled.ort_version

    def patches(self, base: str) -> Tuple[str, ...]:
        """Paths of the patches to that ORT's source; none for ``NO_BASE``, where nothing is compiled."""
        return {"nvidia": self.nvidia.patches, "assembled": self.assembled.patches}.get(base, ())


@dataclass(frozen=True)
class Variant:
    """One package: a name, the sm set it promises native code for, and the generations that is.

    One of section ``providers`` has neither, but the official wheel that is repacked.
    """

    name: str
    sm: Tuple[Arch, ...]
    generations: Tuple[str, ...]
    provider: str = CUDA
    """The execution provider it is for."""
    platform: str = LINUX
    wheel: Optional[Input] = None
    """What a package without CUDA is made of; ``None``: ``onnxruntime`` of the version of its base."""
    widen: bool = False
    """Whether it promises every capability that plain code for ``sm`` runs on (``core.widening``)."""


@dataclass(frozen=True)
class Limits:
    """The ``check`` section: how far a package's libraries may go."""

    extra_sm: Severity
    """How bad it is that the provider holds an architecture that nobody asked for."""
    glibc: str
    """Newest ``GLIBC_`` version that a library may need, ``2.35``."""
    glibcxx: str
    """Newest ``GLIBCXX_`` version that a library may need, ``3.4.30``."""


@dataclass(frozen=True)
class Bundle:
    """The ``bundle`` section."""

    layouts: Tuple[Layout, ...]
    forms: Tuple[Form, ...]
    preset: Preset
    budget: int
    """Largest file in bytes; GitHub refuses assets of 2 GiB and more."""
    oversize: Oversize
    licence: str
    """Path of our own licence file."""


@dataclass(frozen=True)
class Publish:
    """The ``publish`` section: where a release goes."""

    api: str
    repository: str
    tag: str
    """Default tag; ``{version}`` is ORT's version."""


@dataclass(frozen=True)
class ModelRule:
    """One line of the model table: the first whose floors are met wins."""

    model: str
    device: str
    """``gpu`` or ``cpu``."""
    vram_mib: int = 0
    cores: int = 0
    ram_gib: int = 0


@dataclass(frozen=True)
class Project:
    """All of ``variants.yaml``."""

    onnxruntime: OnnxRuntime
    cuda: Cuda
    cudnn: Cudnn
    bases: Bases
    variants: Mapping[str, Variant]
    check: Limits
    bundle: Bundle
    publish: Publish
    models: Tuple[ModelRule, ...]
    providers: Mapping[str, Variant] = field(default_factory=dict)
    """Packages for machines without a fitting NVIDIA GPU, by name."""

    @property
    def packages(self) -> Mapping[str, Variant]:
        """Variants and providers: every name that a package can be asked for by."""
        return {**self.variants, **self.providers}

    @property
    def patches(self) -> Tuple[str, ...]:
        """Every patch that any base names."""
        return (*self.bases.nvidia.patches, *self.bases.assembled.patches)


@dataclass(frozen=True)
class BuildPlan:
    """One variant, fully decided: what ``render`` and every later stage read. Made by the ``plan`` stage."""

    project: Project
    variant: Variant
    base: str
    """``nvidia`` or ``assembled``; ``NO_BASE`` where no image has a part in it."""
    base_reason: str
    origin: Origin
    """``WHEEL`` or ``SOURCE``, never ``AUTO``."""
    origin_reason: str
    profile: Optional[Profile]
    """``None`` for origin wheel: the official build is what it is."""
    host: Host
    ort_version: str
    """Version of the libraries in the package."""
    ort_wheel: Input
    """Official ``onnxruntime-gpu`` wheel of that version: the host library, or everything.

    Of a package without CUDA, the wheel that is repacked.
    """
    added: Tuple[Arch, ...] = ()
    """What of ``variant.sm`` widening added to the set of ``variants.yaml``."""

    @property
    def patches(self) -> Tuple[str, ...]:
        """Patches to what is compiled: the base's."""
        return self.project.bases.patches(self.base)

    @property
    def layouts(self) -> Tuple[Layout, ...]:
        """The layouts that are made: without NVIDIA's libraries there is nothing to leave out."""
        return self.project.bundle.layouts if self.variant.provider == CUDA else (Layout.FULL,)

    @property
    def possible_layouts(self) -> Tuple[Layout, ...]:
        """Those that an earlier build may have made."""
        return tuple(Layout) if self.variant.provider == CUDA else (Layout.FULL,)
