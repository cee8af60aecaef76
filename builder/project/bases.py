"""The bases of ``variants.yaml``: system, CUDA toolkit and ONNX Runtime's source to compile variants with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from builder.project import kinds
from builder.project.inputs import Input, InputKind
from builder.project.kinds import ProjectSection

Packages = Annotated[tuple[kinds.DebianName, ...], kinds.SomeDistinct]


@dataclass(frozen=True)
class ImageSystem(ProjectSection):
    """A system that is an image."""

    image: kinds.Image
    """The image that compiles."""
    runtime: kinds.Image
    """An image without CUDA, in which packages are tried."""
    packages: Packages
    """Packages of apt that the build needs in addition to the image."""
    snapshot: Annotated[tuple[kinds.AptList, ...], kinds.SomeDistinct]
    """Signed lists of the snapshot of apt's archive that has these packages."""


@dataclass(frozen=True)
class SuiteSystem(ProjectSection):
    """A system that is made from Debian's archive."""

    suite: kinds.Suite
    """Debian's code name."""
    packages: Packages
    """Debian packages that the build needs from that suite."""


@dataclass(frozen=True)
class ImageToolkit(ProjectSection):
    """The CUDA toolkit that the system has."""

    version: kinds.TwoNumbers
    """nvcc's version."""
    ptxas = None


@dataclass(frozen=True)
class RedistToolkit(ProjectSection):
    """NVIDIA's redistributable archives."""

    redist: kinds.ThreeNumbers
    """The toolkit's release, ``12.9.1``."""
    components: Annotated[tuple[kinds.ComponentName, ...], kinds.SomeDistinct]
    """Archives that are unpacked."""
    wheels: Annotated[Mapping[str, Input], kinds.by_role(kinds.Wheel, "cusparse")]
    """Toolchain wheels by role."""
    ptxas = None

    @property
    def version(self) -> str:
        """Version of nvcc."""
        return self.redist.rpartition(".")[0]

    @property
    def archives(self) -> tuple[Input, ...]:
        """The archives, in the order of ``components``."""
        return tuple(Input(InputKind.REDIST, f"{self.redist}/{name}") for name in self.components)


@dataclass(frozen=True)
class UnpackedToolkit(ProjectSection):
    """nvcc unpacked from Debian's package, with a newer ptxas and headers from NVIDIA's wheels."""

    version: Annotated[kinds.TwoNumbers, Field(alias="nvcc")]
    """nvcc's version: decides which architectures can be compiled."""
    deb: kinds.Deb
    """Debian's package of nvcc."""
    wheels: Annotated[
        Mapping[str, Input], kinds.by_role(kinds.Wheel, "nvcc", "ptxas", "cudart", "cccl", "cusparse")
    ]
    """Toolchain wheels by role."""

    @property
    def ptxas(self) -> str:
        """Version of the ptxas that assembles architectures that nvcc does not know, ``12.9.86``."""
        return self.wheels["ptxas"].spec.rpartition("==")[2]


@dataclass(frozen=True)
class GitSource(ProjectSection):
    """ORT's source by git tag, with the archives that its own build would download."""

    git: kinds.GitTag
    """Git tag of ORT's source."""


@dataclass(frozen=True)
class TarballSource(ProjectSection):
    """ORT's source and its dependencies from Debian's archive."""

    tarball: kinds.Tarball
    """ORT's source tarball."""
    debs: Annotated[Mapping[str, Input], kinds.by_role(kinds.Deb, "mp11", "gsl", "safeint")]
    """Debian binary packages by role."""
    sources: Annotated[Mapping[kinds.DependencyName, kinds.Tarball], kinds.NamedEntries]
    """ORT's dependencies as source tarballs, by FetchContent name."""
    wheels: Annotated[Mapping[str, Input], kinds.by_role(kinds.Wheel, "cudnn_frontend", "cutlass")]
    """Headers by role."""


System = ImageSystem | SuiteSystem
BaseToolkit = ImageToolkit | RedistToolkit | UnpackedToolkit
Source = GitSource | TarballSource


@dataclass(frozen=True)
class Base(ProjectSection):
    """A system, a CUDA toolkit and ORT's source, with which variants are compiled."""

    ort_version: Annotated[kinds.ThreeNumbers, Field(alias="onnxruntime")]
    """ORT version that is compiled on this base."""
    system: Annotated[System, Field(alias="rootfs"), kinds.by_key(image=ImageSystem, suite=SuiteSystem)]
    """The system that compiles."""
    toolkit: Annotated[
        BaseToolkit, kinds.by_key(version=ImageToolkit, redist=RedistToolkit, nvcc=UnpackedToolkit)
    ]
    """nvcc and the rest of its toolkit."""
    source: Annotated[Source, kinds.by_key(git=GitSource, tarball=TarballSource)]
    """ORT's source."""
    cmake: kinds.Wheel
    """The wheel of CMake."""
    patches: Annotated[tuple[kinds.ProjectPath, ...], kinds.SomeDistinct] = ()
    """Patches to ORT's source, relative to this file, in the order in which they are applied."""
