"""``variants.yaml`` as values: what is built, from what, for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from builder.findings.finding import Severity
from builder.formats.manifest import ModelRule
from builder.formats.package_names import Form, Host, Layout, Profile
from builder.formats.providers import CUDA, LINUX
from builder.gpu.architectures import Arch
from builder.project.inputs import Input


class Origin(Enum):
    """Where a variant's ORT libraries come from."""

    AUTO = "auto"
    """Wheel where it holds native SASS for each sm of the set, else source."""
    WHEEL = "wheel"
    SOURCE = "source"


class Preset(Enum):
    """How hard an archive is compressed."""

    FAST = "fast"
    SMALL = "small"


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
    packages: tuple[str, ...]
    wheels: Mapping[str, Input]
    """Build tools by role (``cmake``)."""
    patches: tuple[str, ...]
    """Paths of patches to ORT's source, applied in this order."""


@dataclass(frozen=True)
class AssembledBase:
    """The base for places without Docker Hub: Debian, tools from Debian and PyPI, sources from Debian."""

    suite: str
    packages: tuple[str, ...]
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
    patches: tuple[str, ...]
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

    def patches(self, base: str) -> tuple[str, ...]:
        """Paths of the patches to that ORT's source; none for ``NO_BASE``, where nothing is compiled."""
        return {"nvidia": self.nvidia.patches, "assembled": self.assembled.patches}.get(base, ())


@dataclass(frozen=True)
class Variant:
    """One package: a name, the sm set it promises native code for, and the generations that is.

    One of section ``providers`` has neither, but the official wheel that is repacked.
    """

    name: str
    sm: tuple[Arch, ...]
    generations: tuple[str, ...]
    provider: str = CUDA
    """The execution provider it is for."""
    platform: str = LINUX
    wheel: Input | None = None
    """What a package without CUDA is made of; ``None``: ``onnxruntime`` of the version of its base."""
    widen: bool = False
    """Whether it promises every capability that plain code for ``sm`` runs on (``onnxruntime.widening``)."""


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

    layouts: tuple[Layout, ...]
    forms: tuple[Form, ...]
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
    models: tuple[ModelRule, ...]
    providers: Mapping[str, Variant] = field(default_factory=dict)
    """Packages for machines without a fitting NVIDIA GPU, by name."""

    @property
    def packages(self) -> Mapping[str, Variant]:
        """Variants and providers: every name that a package can be asked for by."""
        return {**self.variants, **self.providers}

    @property
    def patches(self) -> tuple[str, ...]:
        """Every patch that any base names."""
        return (*self.bases.nvidia.patches, *self.bases.assembled.patches)
