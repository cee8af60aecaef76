"""``variants.yaml``: what is built, from what, for whom. One class per section of the file.

pydantic reads the sections from the file (``config.project``), and ``docs/schemas/variants.schema.json`` is
made of the same annotations and docstrings. Values that code makes are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from builder.findings.finding import Severity
from builder.formats.manifest import ModelRule
from builder.formats.package_names import (
    COREML,
    CPU,
    CUDA,
    DIRECTML,
    LINUX,
    LINUX_ARM64,
    SERVED,
    Form,
    Host,
    Layout,
    Profile,
)
from builder.gpu.architectures import Arch
from builder.project import kinds
from builder.project.inputs import TEST_INPUTS, Input, InputKind, Lock, ort_wheel
from builder.project.kinds import ProjectSection


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


Patches = Annotated[tuple[kinds.ProjectPath, ...], kinds.SomeDistinct]
Packages = Annotated[tuple[kinds.DebianName, ...], kinds.SomeDistinct]


@dataclass(frozen=True)
class OnnxRuntime(ProjectSection):
    """The ORT a release ships and how it is made by default."""

    version: kinds.ThreeNumbers
    """Version of the official wheels that --mixed repacks; without it a package has its base's version."""
    origin: Origin
    """Where ORT's libraries come from: the official wheel, compiled source, or (auto) the wheel where it has
    native code for the whole set, else source."""
    host: Host
    """Where libonnxruntime.so comes from when the CUDA provider is compiled."""
    profile: Profile
    """How much of ORT is compiled; a release demands full."""
    tensorrt: kinds.Flag = False
    """Whether packages hold the official TensorRT provider too; TensorRT itself is the user's to bring."""


@dataclass(frozen=True)
class Cuda(ProjectSection):
    """The CUDA run-time libraries in every package."""

    version: kinds.TwoNumbers
    """Version of the toolkit, for example "12.9"."""
    libraries: Annotated[
        Mapping[str, Input], kinds.by_role(kinds.Wheel, "cudart", "cublas", "cufft", "curand", "nvrtc")
    ]
    """NVIDIA's wheels by role."""


@dataclass(frozen=True)
class Cudnn(ProjectSection):
    """The cuDNN in every package."""

    version: kinds.FourNumbers
    """Four numbers."""
    wheel: kinds.Wheel
    """NVIDIA's wheel of exactly that version."""


@dataclass(frozen=True)
class Toolkit(ProjectSection):
    """Another CUDA toolkit: official wheels that were compiled with it are repacked."""

    ort_version: Annotated[kinds.ThreeNumbers, Field(alias="onnxruntime")]
    """Version of the official wheels, onnxruntime-gpu."""
    cuda: Cuda
    cudnn: Cudnn


@dataclass(frozen=True)
class ImageSystem(ProjectSection):
    """A system that is an image."""

    image: kinds.Image
    """The image that compiles."""
    runtime: kinds.Image
    """An image with nothing of CUDA: packages are tried in it."""
    packages: Packages
    """Packages of apt that the build needs beside the image."""
    snapshot: Annotated[tuple[kinds.AptList, ...], kinds.SomeDistinct]
    """The signed lists of the state of apt's archive that these packages come from."""


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
    components: Annotated[tuple[kinds.Component, ...], kinds.SomeDistinct]
    """Which of its archives are unpacked."""
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
        """Version of the ptxas that assembles what nvcc does not know, ``12.9.86``."""
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
    """What a variant can be compiled on: a system, a CUDA toolkit and ORT's source."""

    ort_version: Annotated[kinds.ThreeNumbers, Field(alias="onnxruntime")]
    """ORT version that is compiled here."""
    system: Annotated[System, Field(alias="rootfs"), kinds.by_key(image=ImageSystem, suite=SuiteSystem)]
    """The system that compiles."""
    toolkit: Annotated[
        BaseToolkit, kinds.by_key(version=ImageToolkit, redist=RedistToolkit, nvcc=UnpackedToolkit)
    ]
    """nvcc and what belongs to it."""
    source: Annotated[Source, kinds.by_key(git=GitSource, tarball=TarballSource)]
    """ORT's source."""
    cmake: kinds.Wheel
    """The wheel of CMake."""
    patches: Patches = ()
    """Patches to ORT's source, relative to this file, in the order in which they are applied."""


@dataclass(frozen=True)
class Variant:
    """One package: a name, the sm set it promises native code for, and the generations that is.

    A package of section ``providers`` has neither, but the official wheel that is repacked.
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
    toolkit: str | None = None
    """The entry of ``toolkits`` whose libraries it has; ``None`` for those of ``cuda`` and ``cudnn``."""
    in_all: bool = True
    """Whether ``--all`` and the release's matrix have it; else it is made where it is named."""

    @property
    def is_official(self) -> bool:
        """Whether it is an official wheel repacked, whatever is asked for: nothing is compiled for it."""
        return self.provider != CUDA or self.platform != LINUX or self.toolkit is not None

    @property
    def is_tried_here(self) -> bool:
        """Whether an engine of this machine's kind has a part in it: packages for CUDA on linux-x64."""
        return self.provider == CUDA and self.platform == LINUX

    @property
    def folder(self) -> str:
        """Name of its folder in ``dist``, and of the lock on that."""
        return f"{self.name}-arm64" if self.platform == LINUX_ARM64 and self.provider == CPU else self.name


@dataclass(frozen=True)
class CompiledEntry(ProjectSection):
    """One package."""

    sm: kinds.Architectures
    """Architectures with native code: 86, or 90a with its suffix."""
    generations: Annotated[tuple[kinds.GenerationName, ...], kinds.SomeDistinct]
    """The GPU generations that these architectures are."""
    widen: kinds.Flag = False
    """true: the package runs wherever plain code for the set does, whatever ORT's CMake makes of it."""
    platform: Annotated[str, kinds.one_of(SERVED[CUDA])] = LINUX
    """What the package runs on; for another platform than linux-x64 the official wheel is repacked."""
    toolkit: Annotated[kinds.ToolkitName | None, Field(alias="cuda")] = None
    """The entry of toolkits whose official wheel is repacked; without it the toolkit is that of cuda."""
    in_all: Annotated[kinds.Flag, Field(alias="all")] = True
    """false: `--all` leaves it out, `--variant` makes it."""


@dataclass(frozen=True)
class CpuEntry(ProjectSection):
    """The official wheel of one platform, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[CPU])]
    """What the package runs on."""
    wheel: Annotated[Input | None, kinds.WHEEL] = None
    """The official wheel that is repacked; without it onnxruntime of the base's version."""


@dataclass(frozen=True)
class CoremlEntry(CpuEntry):
    """The official wheel for macOS, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[COREML])]
    """What the package runs on."""


@dataclass(frozen=True)
class DirectmlEntry(ProjectSection):
    """The official wheel for Windows, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[DIRECTML])]
    """What the package runs on."""
    wheel: kinds.Wheel
    """The official wheel that is repacked."""


@dataclass(frozen=True)
class ProviderEntries(ProjectSection):
    """Packages for machines without a fitting NVIDIA GPU: official wheels, repacked."""

    cpu: Annotated[CpuEntry | None, kinds.written_as(CpuEntry)] = None
    """For the CPU."""
    directml: Annotated[DirectmlEntry | None, kinds.written_as(DirectmlEntry)] = None
    """For any GPU on Windows."""
    coreml: Annotated[CoremlEntry | None, kinds.written_as(CoremlEntry)] = None
    """For Apple's GPUs and Neural Engine."""


def _variants(entries: Mapping[str, CompiledEntry]) -> dict[str, Variant]:
    return {
        name: Variant(
            name,
            entry.sm,
            entry.generations,
            platform=entry.platform,
            widen=entry.widen,
            toolkit=entry.toolkit,
            in_all=entry.in_all,
        )
        for name, entry in entries.items()
    }


def _provider_variants(section: ProviderEntries) -> dict[str, Variant]:
    entries = ((key.name, getattr(section, key.name)) for key in fields(section))
    return {name: _repacked(name, entry) for name, entry in entries if entry is not None}


def _repacked(name: str, entry: CpuEntry | DirectmlEntry) -> Variant:
    wheel = Input.wheel(entry.wheel.spec, entry.platform) if entry.wheel else None
    return Variant(name, (), (), name, entry.platform, wheel)


@dataclass(frozen=True)
class Limits(ProjectSection):
    """What a package's libraries are held to, and by what."""

    cuobjdump: kinds.Deb
    """Debian's package of the cuobjdump that counts along, on every base."""
    headers: kinds.Deb
    """Debian's package of the C API that the smoke program is written against."""

    extra_sm: Annotated[Severity, kinds.written_as(Literal["error", "warning"], Severity)]
    """How bad it is that the CUDA provider holds an architecture that is not in the set."""
    glibc: kinds.TwoNumbers
    """Newest GLIBC_ version that a library may need."""
    glibcxx: kinds.ThreeNumbers
    """Newest GLIBCXX_ version that a library may need."""


@dataclass(frozen=True)
class Bundle(ProjectSection):
    """How packages are packed."""

    layouts: Annotated[
        tuple[Layout, ...], kinds.SomeDistinct, AfterValidator(lambda of: _in_order(of, Layout))
    ]
    """What travels in the archives: everything, or all but NVIDIA's libraries."""
    forms: Annotated[tuple[Form, ...], kinds.SomeDistinct, AfterValidator(lambda of: _in_order(of, Form))]
    """Kinds of archives, by the end of their names."""
    preset: Preset
    """Compression: seconds against bytes."""
    budget: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
    """Largest file in bytes; GitHub refuses assets of 2 GiB and more."""
    oversize: Oversize
    """What happens to an archive over the budget: refused, or cut into parts."""
    licence: kinds.ProjectPath
    """Our own licence file, relative to this file."""
    wheels: kinds.Flag = False
    """Whether build makes wheels of each package too, as ./run wheel does, and publish releases them."""


def _in_order(found: tuple[Enum, ...], order: type[Enum]) -> tuple[Enum, ...]:
    return tuple(member for member in order if member in found)


@dataclass(frozen=True)
class Images(ProjectSection):
    """What runtime images are made of, besides their package."""

    suite: kinds.Suite
    """Debian's code name."""

    packages: Packages
    """Debian packages of that suite; what these depend on is listed too."""
    wheels: Annotated[Mapping[str, Input], kinds.by_role(kinds.Wheel, "numpy")]
    """What Python's ONNX Runtime needs, by role."""
    budget: Annotated[int, Field(strict=True, ge=1)]
    """Largest image in bytes: without CUDA on disk; for CUDA what is compiled, compressed, without models."""


@dataclass(frozen=True)
class Publish(ProjectSection):
    """Where a release goes."""

    api: kinds.ApiUrl
    """Base URL of the GitHub API, without a closing slash."""
    repository: kinds.Repository
    """owner/name"""
    tag: kinds.ReleaseTag
    """Default tag; {version} is ORT's version."""


@dataclass(frozen=True)
class ModelEntry(ProjectSection):
    """One line."""

    model: kinds.ModelName
    device: Literal["gpu", "cpu"]
    """What the model runs on."""
    vram_mib: kinds.Floor = 0
    """GPU memory in MiB; gpu lines only."""
    cores: kinds.Floor = 0
    """CPU cores."""
    ram_gib: kinds.Floor = 0
    """Memory in GiB."""


def _model_rule(line: ModelEntry) -> ModelRule:
    return ModelRule(line.model, line.device, line.vram_mib, line.cores, line.ram_gib)


_NO_GPU_MEMORY_OF_CPUS = {
    "if": {"properties": {"device": {"const": "cpu"}}},
    "then": {"properties": {"vram_mib": False}},
}


@dataclass(frozen=True)
class Project(ProjectSection):
    """What ortpacks builds. docs/variants.md explains each key."""

    format: kinds.FormatNumber
    """Version of this file's format."""
    onnxruntime: OnnxRuntime
    cuda: Cuda
    cudnn: Cudnn
    bases: Annotated[Mapping[kinds.BaseName, Base], Field(min_length=1), kinds.NamedEntries]
    """What variants can be compiled on, by name; --base auto takes the first that can be had."""
    variants: Annotated[
        Mapping[str, Variant],
        kinds.written_as(
            Annotated[Mapping[kinds.VariantName, CompiledEntry], Field(min_length=1), kinds.NamedEntries],
            _variants,
        ),
    ]
    """The packages, by name."""
    check: Limits
    bundle: Bundle
    image: Images
    publish: Publish
    models: Annotated[
        tuple[
            Annotated[
                ModelRule,
                kinds.written_as(ModelEntry, _model_rule),
                Field(json_schema_extra=_NO_GPU_MEMORY_OF_CPUS),
            ],
            ...,
        ],
        Field(min_length=1),
    ]
    """The model table: the first line whose floors a machine meets."""
    providers: Annotated[Mapping[str, Variant], kinds.written_as(ProviderEntries, _provider_variants)] = (
        field(default_factory=dict)
    )
    """Packages for machines without a fitting NVIDIA GPU, by name."""
    toolkits: Annotated[Mapping[kinds.ToolkitName, Toolkit], kinds.NamedEntries] = field(default_factory=dict)
    """Toolkits beside cuda, by CUDA's major version: variants that name one are official wheels repacked."""

    def of(self, variant: Variant) -> Project:
        """The project with the CUDA libraries and cuDNN of a variant, from wheels for its platform."""
        if variant.provider != CUDA:
            return self
        found: Toolkit | Project = self.toolkits[variant.toolkit] if variant.toolkit else self
        platform = variant.platform
        libraries = {
            role: Input.wheel(wheel.requirement, platform) for role, wheel in found.cuda.libraries.items()
        }
        cudnn = Input.wheel(found.cudnn.wheel.requirement, platform)
        return replace(
            self, cuda=replace(found.cuda, libraries=libraries), cudnn=replace(found.cudnn, wheel=cudnn)
        )

    def official_versions(self, variant: Variant) -> tuple[str, ...]:
        """The versions of the official GPU wheel that a variant can be made of, by what is asked for."""
        if variant.toolkit:
            return (self.toolkits[variant.toolkit].ort_version,)
        return tuple(sorted(self.ort_versions))

    @property
    def bundled(self) -> tuple[Input, ...]:
        """NVIDIA's wheels: those of CUDA's libraries, and cuDNN's."""
        return (*self.cuda.libraries.values(), self.cudnn.wheel)

    @property
    def packages(self) -> Mapping[str, Variant]:
        """Variants and providers: every name that a package can be asked for by."""
        return {**self.variants, **self.providers}

    @property
    def ort_versions(self) -> set[str]:
        """The ORT versions that a package can have."""
        return {self.onnxruntime.version, *(base.ort_version for base in self.bases.values())}

    @property
    def patches(self) -> tuple[str, ...]:
        """Every patch that any base names."""
        return tuple(patch for base in self.bases.values() for patch in base.patches)


def on_platform(variant: Variant, platform: str) -> Variant:
    """The variant's package for a platform of Linux, which a runtime image may be for."""
    wheel = Input.wheel(variant.wheel.requirement, platform) if variant.wheel else None
    return replace(variant, platform=platform, wheel=wheel)


def provider_wheel(variant: Variant, version: str) -> Input:
    """The official wheel of a package without CUDA: the one it names, or ``onnxruntime`` of ``version``."""
    return variant.wheel or Input.wheel(f"onnxruntime=={version}", variant.platform)


def base_inputs(project: Project, base: str, lock: Lock) -> tuple[Input, ...]:
    """What the base of this name is made of, next to packages of its root file system, sorted by key.

    Nothing of ``NO_BASE``.
    """
    return _sorted(_named(project.bases.get(base)), lock)


def wanted_inputs(project: Project, lock: Lock) -> tuple[Input, ...]:
    """Every input that any variant on any base can need, and those of the tests, sorted by key.

    What a git tag's own build would download is known once ``lock`` has the tag.
    """
    versions = project.ort_versions
    official = [one for one in project.variants.values() if one.is_official]
    variants = {*project.providers.values()}
    variants |= {on_platform(one, LINUX_ARM64) for one in variants if one.platform == LINUX}
    providers = (provider_wheel(variant, version) for variant in variants for version in versions)
    images = (Input.wheel(wheel.spec, LINUX_ARM64) for wheel in project.image.wheels.values())
    repacked = (
        ort_wheel(version, variant.platform)
        for variant in official
        for version in project.official_versions(variant)
    )
    bundled = (wheel for variant in official for wheel in project.of(variant).bundled)
    own = {*_named(replace(project, toolkits={})), *map(ort_wheel, versions)}
    found = {*own, *repacked, *bundled, *providers, *images, *TEST_INPUTS}
    return _sorted(found, lock)


def _sorted(found: Iterable[Input], lock: Lock) -> tuple[Input, ...]:
    """The inputs and the archives that git tags among them want, sorted by key."""
    named = set(found)
    return tuple(
        sorted({*named, *(file for item in named for file in lock.files_of(item))}, key=lambda item: item.key)
    )


def wheeled_inputs(project: Project) -> tuple[str, ...]:
    """The official wheels, ``name==version``, that ``./run wheel`` takes for every Python."""
    versions = project.ort_versions
    linux = (one for one in project.providers.values() if one.platform == LINUX)
    others = {provider_wheel(one, version).requirement for one in linux for version in versions}
    return tuple(sorted(others | {ort_wheel(version).requirement for version in versions}))


def _named(value: object) -> Iterator[Input]:
    """Inputs anywhere below a value: none can be forgotten when a section grows a key."""
    if isinstance(value, Input):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _named(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from _named(part)
    elif is_dataclass(value):
        yield from value.archives if isinstance(value, RedistToolkit) else ()
        for key in fields(value):
            yield from _named(getattr(value, key.name))
