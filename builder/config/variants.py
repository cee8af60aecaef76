"""``variants.yaml`` defines what is built, from what and for whom. Each section of the file has a class.

pydantic reads the sections from the file (``config.load``), and ``docs/schemas/variants.schema.json`` is
made of the same annotations and docstrings. Values that code makes are not checked. The inputs that a base
or a whole project needs are found in these values (``all_inputs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from builder.config import fields as kinds
from builder.config.fields import ProjectSection
from builder.config.inputs import (
    PLUGIN_HOSTS,
    TEST_INPUTS,
    Input,
    InputKind,
    Lock,
    Pin,
    host_wheel,
    ort_wheel,
)
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.source import HEADERS, LIST, VERSION_FILE, Dependency
from builder.finding import Severity
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
    PackageForm,
    Profile,
)
from builder.formats.text import nearest

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
    suite = None


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
class WheelToolkit:
    """The toolkit from NVIDIA's wheels alone, of an entry of ``toolkits`` (``Project.compiling_with``)."""

    version: str
    """nvcc's version."""
    wheels: Mapping[str, Input]
    """``Toolkit.compiler``."""
    ptxas = None


@dataclass(frozen=True)
class GitSource(ProjectSection):
    """ORT's source from a git repository."""

    item: Annotated[kinds.Git, Field(alias="git")]
    """Repository, with a tag, a branch or a commit."""
    sha256 = ""


@dataclass(frozen=True)
class TreeSource(ProjectSection):
    """ORT's source as a folder of this machine has it; its packages cannot be released."""

    item: Annotated[kinds.Folder, Field(alias="tree")]
    """Path of the folder."""
    sha256 = ""


@dataclass(frozen=True)
class TarballSource(ProjectSection):
    """ORT's source as an archive."""

    item: Annotated[kinds.Tarball, Field(alias="tarball")]
    """Archive of Debian's, of the web or of this machine."""
    sha256: Annotated[kinds.Sha256, Field()] = ""
    """sha256 that the archive must have."""


System = ImageSystem | SuiteSystem
BaseToolkit = ImageToolkit | RedistToolkit | UnpackedToolkit | WheelToolkit
Source = GitSource | TreeSource | TarballSource


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
    source: Annotated[Source, kinds.by_key(git=GitSource, tree=TreeSource, tarball=TarballSource)]
    """ORT's source."""
    cmake: kinds.Wheel
    """The wheel of CMake."""
    dependencies: Annotated[Mapping[kinds.DependencyName, kinds.Dependency], kinds.NamedEntries] = field(
        default_factory=dict
    )
    """What is built in place of archives that the source's cmake/deps.txt names, by its names."""
    patches: Annotated[tuple[kinds.ProjectPath, ...], kinds.SomeDistinct] = ()
    """Patches to ORT's source, relative to this file, in the order in which they are applied."""


class Origin(Enum):
    """Sources of a variant's ORT libraries."""

    AUTO = "auto"
    """The wheel if it has native SASS for each architecture of the set, else source."""
    WHEEL = "wheel"
    SOURCE = "source"


class Preset(Enum):
    """Levels of compression of an archive."""

    FAST = "fast"
    SMALL = "small"


@dataclass(frozen=True)
class OnnxRuntime(ProjectSection):
    """The version of ORT in a release, and the defaults for making it."""

    version: kinds.ThreeNumbers
    """Version of the official wheels for CUDA 12: Windows' packages have it, and Linux' with --mixed."""
    origin: Origin
    """Source of ORT's libraries: the official wheel, compiled source, or auto.

    auto is the wheel if it has native code for the whole set, else source.
    """
    host: Host
    """Source of libonnxruntime.so when the CUDA provider is compiled."""
    profile: Profile
    """Part of ORT that is compiled; a release requires full."""
    tensorrt: kinds.Flag = False
    """Whether packages have the official TensorRT provider too; users install TensorRT themselves."""


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
    """Version of cuDNN, four numbers."""
    wheel: kinds.Wheel
    """NVIDIA's wheel of exactly that version."""


@dataclass(frozen=True)
class Toolkit(ProjectSection):
    """Another CUDA toolkit: official wheels that were compiled with it are repacked, and it compiles."""

    ort_version: Annotated[kinds.ThreeNumbers, Field(alias="onnxruntime")]
    """Version of the official wheels, onnxruntime-gpu."""
    cuda: Cuda
    cudnn: Cudnn
    compiler: Annotated[
        Mapping[str, Input], kinds.by_role(kinds.Wheel, "nvcc", "nvvm", "crt", "cccl", "cusparse")
    ] = field(default_factory=dict)
    """NVIDIA's wheels of its compiler by role; without them nothing is compiled with it."""


@dataclass(frozen=True)
class Variant:
    """One package: a name, the architectures that it promises native code for, and their GPU generations.

    A package of section ``providers`` has no architectures and generations, but an official wheel to repack.
    """

    name: str
    sm: tuple[Arch, ...]
    generations: tuple[str, ...]
    provider: str = CUDA
    """The execution provider of the package."""
    platform: str = LINUX
    wheel: Input | None = None
    """The wheel that is repacked without CUDA; ``None``: ``onnxruntime`` of its base's version."""
    widen: bool = False
    """Whether the package promises every capability that plain code for ``sm`` runs on.

    See ``config.build_plan``.
    """
    toolkit: str | None = None
    """The entry of ``toolkits`` whose libraries are packed; ``None``: those of ``cuda`` and ``cudnn``."""
    in_all: bool = True
    """Whether ``--all`` and the release's matrix include the package; if not, it is made only by its name."""
    form: PackageForm = PackageForm.PROVIDER
    """Whether stock hosts register its library, or its own host library opens it."""

    @property
    def is_plugin(self) -> bool:
        """Whether stock hosts register its library."""
        return self.form is PackageForm.PLUGIN

    @property
    def is_official(self) -> bool:
        """Whether the package is always an official wheel repacked, so that nothing is compiled for it."""
        return self.provider != CUDA or self.platform != LINUX or self.toolkit is not None

    @property
    def is_tried_here(self) -> bool:
        """Whether the package is tried in a container of an engine: one for CUDA on linux-x64."""
        return self.provider == CUDA and self.platform == LINUX

    @property
    def folder(self) -> str:
        """Name of its folder in ``dist``, and of the folder's lock."""
        if self.is_plugin:
            return f"{self.name}-plugin"
        return f"{self.name}-arm64" if self.platform == LINUX_ARM64 and self.provider == CPU else self.name


@dataclass(frozen=True)
class CompiledEntry(ProjectSection):
    """One package."""

    sm: kinds.Architectures
    """Architectures with native code: 86, or 90a with its suffix."""
    generations: Annotated[tuple[kinds.GenerationName, ...], kinds.SomeDistinct]
    """GPU generations of these architectures."""
    widen: kinds.Flag = False
    """true: the package runs on all GPUs that plain code for the set runs on, although CMake narrows it."""
    platform: Annotated[str, kinds.one_of(SERVED[CUDA])] = LINUX
    """Platform of the package; for another platform than linux-x64 the official wheel is repacked."""
    toolkit: Annotated[kinds.ToolkitName | None, Field(alias="cuda")] = None
    """Entry of toolkits whose official wheel is repacked; without it the toolkit is that of cuda."""
    in_all: Annotated[kinds.Flag, Field(alias="all")] = True
    """false: `--all` leaves the package out, `--variant` makes it."""
    form: PackageForm = PackageForm.PROVIDER
    """plugin: one library that stock ONNX Runtimes register; provider: host library and provider."""


@dataclass(frozen=True)
class CpuEntry(ProjectSection):
    """The official wheel of one platform, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[CPU])]
    """Platform of the package."""
    wheel: Annotated[Input | None, kinds.WHEEL] = None
    """The official wheel that is repacked; without it onnxruntime of the base's version."""


@dataclass(frozen=True)
class CoremlEntry(CpuEntry):
    """The official wheel for macOS, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[COREML])]
    """Platform of the package."""


@dataclass(frozen=True)
class DirectmlEntry(ProjectSection):
    """The official wheel for Windows, repacked."""

    platform: Annotated[str, kinds.one_of(SERVED[DIRECTML])]
    """Platform of the package."""
    wheel: kinds.Wheel
    """The official wheel that is repacked."""


@dataclass(frozen=True)
class ProviderEntries(ProjectSection):
    """Packages for machines without a fitting NVIDIA GPU: official wheels, repacked."""

    cpu: Annotated[CpuEntry | None, kinds.written_as(CpuEntry)] = None
    """Package for the CPU."""
    directml: Annotated[DirectmlEntry | None, kinds.written_as(DirectmlEntry)] = None
    """Package for any GPU on Windows."""
    coreml: Annotated[CoremlEntry | None, kinds.written_as(CoremlEntry)] = None
    """Package for Apple's GPUs and Neural Engine."""


def _variants(entries: Mapping[str, CompiledEntry]) -> dict[str, Variant]:
    return {name: Variant(name, **vars(entry)) for name, entry in entries.items()}


def _provider_variants(section: ProviderEntries) -> dict[str, Variant]:
    made = {}
    for name, entry in vars(section).items():
        if entry is not None:
            wheel = Input.wheel(entry.wheel.spec, entry.platform) if entry.wheel else None
            made[name] = Variant(name, (), (), name, entry.platform, wheel)
    return made


@dataclass(frozen=True)
class Limits(ProjectSection):
    """Limits of a package's libraries, and the tools that check them."""

    cuobjdump: kinds.Deb
    """Debian's package of cuobjdump, which counts the images of packages of every base a second time."""
    headers: kinds.Deb
    """Debian's package of the C API's headers, which the smoke program includes."""

    extra_sm: Annotated[Severity, kinds.written_as(Literal["error", "warning"], Severity)]
    """Severity of an architecture in the CUDA provider that is not in the set."""
    glibc: kinds.TwoNumbers
    """Newest GLIBC_ version that a library may need."""
    glibcxx: kinds.ThreeNumbers
    """Newest GLIBCXX_ version that a library may need."""


@dataclass(frozen=True)
class Bundle(ProjectSection):
    """The form and size of packages' archives."""

    layouts: Annotated[
        tuple[Layout, ...], kinds.SomeDistinct, AfterValidator(lambda of: _in_order(of, Layout))
    ]
    """Contents of the archives: everything, or all but NVIDIA's libraries."""
    forms: Annotated[tuple[Form, ...], kinds.SomeDistinct, AfterValidator(lambda of: _in_order(of, Form))]
    """Kinds of archives, by the end of their names."""
    preset: Preset
    """Level of compression: fast takes fewer seconds, small gives fewer bytes."""
    budget: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
    """Largest file in bytes; GitHub refuses assets of 2 GiB and more."""
    licence: kinds.ProjectPath
    """Our own licence file, relative to this file."""
    wheels: kinds.Flag = False
    """Whether build makes wheels of each package too, as ./run wheel does, and publish releases them."""


def _in_order(members: tuple[Enum, ...], order: type[Enum]) -> tuple[Enum, ...]:
    return tuple(member for member in order if member in members)


@dataclass(frozen=True)
class Images(ProjectSection):
    """The contents of runtime images besides their package."""

    suite: kinds.Suite
    """Debian's code name."""

    packages: Packages
    """Debian packages of that suite, each unpacked; what they depend on is listed too."""
    wheels: Annotated[Mapping[str, Input], kinds.by_role(kinds.Wheel, "numpy", "onnxruntime")]
    """numpy, which ONNX Runtime needs, and Python's ONNX Runtime where it may be of any version."""
    budget: Annotated[int, Field(strict=True, ge=1)]
    """Largest image in bytes on disk; if compiled for CUDA, compressed, without NVIDIA's files and models."""


@dataclass(frozen=True)
class Publish(ProjectSection):
    """The target of a release."""

    api: kinds.ApiUrl
    """Base URL of the GitHub API, without a closing slash."""
    repository: kinds.RepositoryName
    """owner/name"""
    tag: kinds.ReleaseTag
    """Default tag; {version} is ORT's version."""


@dataclass(frozen=True)
class ModelEntry(ProjectSection):
    """One line of the model table."""

    model: kinds.ModelName
    device: Literal["gpu", "cpu"]
    """Device that the model runs on."""
    vram_mib: kinds.Floor = 0
    """Least GPU memory in MiB; gpu lines only."""
    cores: kinds.Floor = 0
    """Least number of CPU cores."""
    ram_gib: kinds.Floor = 0
    """Least memory in GiB."""


_NO_GPU_MEMORY_OF_CPUS = {
    "if": {"properties": {"device": {"const": "cpu"}}},
    "then": {"properties": {"vram_mib": False}},
}


@dataclass(frozen=True)
class Project(ProjectSection):
    """The configuration of ortpacks' builds. docs/variants.md explains each key."""

    format: kinds.FormatNumber
    """Version of this file's format."""
    onnxruntime: OnnxRuntime
    cuda: Cuda
    cudnn: Cudnn
    bases: Annotated[Mapping[kinds.BaseName, Base], Field(min_length=1), kinds.NamedEntries]
    """Bases that variants can be compiled on, by name; --base auto takes the first that is available."""
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
                kinds.written_as(ModelEntry, lambda line: ModelRule(**vars(line))),
                Field(json_schema_extra=_NO_GPU_MEMORY_OF_CPUS),
            ],
            ...,
        ],
        Field(min_length=1),
    ]
    """The model table: the first line whose limits a machine meets is recommended."""
    providers: Annotated[Mapping[str, Variant], kinds.written_as(ProviderEntries, _provider_variants)] = (
        field(default_factory=dict)
    )
    """Packages for machines without a fitting NVIDIA GPU, by name."""
    toolkits: Annotated[Mapping[kinds.ToolkitName, Toolkit], kinds.NamedEntries] = field(default_factory=dict)
    """More toolkits, by CUDA's major version: variants that name one are official wheels repacked.

    --cuda names one that compiles.
    """
    compile_cache: kinds.CacheAddress = ""
    """Compile cache that machines share, unless --compile-cache or ORTPACKS_COMPILE_CACHE names another."""

    def of(self, variant: Variant) -> Project:
        """Return the project with the CUDA libraries and cuDNN of a variant, from wheels for its platform."""
        if variant.provider != CUDA:
            return self
        owner: Toolkit | Project = self.toolkits[variant.toolkit] if variant.toolkit else self
        platform = variant.platform
        libraries = {
            role: Input.wheel(wheel.requirement, platform) for role, wheel in owner.cuda.libraries.items()
        }
        cudnn = Input.wheel(owner.cudnn.wheel.requirement, platform)
        return replace(
            self, cuda=replace(owner.cuda, libraries=libraries), cudnn=replace(owner.cudnn, wheel=cudnn)
        )

    def compiling_with(self, name: str) -> Project:
        """Return the project whose bases of Debian's archive compile with another toolkit, for its CUDA."""
        other = self.toolkits[name]
        toolkit = WheelToolkit(other.cuda.version, other.compiler)
        bases = {
            key: replace(base, toolkit=toolkit)
            for key, base in self.bases.items()
            if isinstance(base.system, SuiteSystem)
        }
        return replace(self, cuda=other.cuda, cudnn=other.cudnn, bases=bases)

    def official_version(self, variant: Variant) -> str:
        """Return the version of the official GPU wheels for a variant's CUDA."""
        toolkit = self.toolkits[variant.toolkit] if variant.toolkit else None
        return toolkit.ort_version if toolkit else self.onnxruntime.version

    @property
    def bundled(self) -> tuple[Input, ...]:
        """NVIDIA's wheels: those of CUDA's libraries, and cuDNN's."""
        return (*self.cuda.libraries.values(), self.cudnn.wheel)

    @property
    def packages(self) -> Mapping[str, Variant]:
        """Variants and providers by name."""
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
    """Return the variant's package for a platform of Linux, which a runtime image may be for."""
    wheel = Input.wheel(variant.wheel.requirement, platform) if variant.wheel else None
    return replace(variant, platform=platform, wheel=wheel)


def provider_wheel(variant: Variant, version: str) -> Input:
    """Return the official wheel of a package without CUDA: its own, or ``onnxruntime`` of ``version``."""
    return variant.wheel or Input.wheel(f"onnxruntime=={version}", variant.platform)


def base_inputs(project: Project, base: str, lock: Lock) -> tuple[Input, ...]:
    """Return the inputs of the base of this name, without packages of its root file system, sorted by key.

    Empty for ``NO_BASE``.
    """
    bases = [project.bases[base]] if base in project.bases else []
    return _sorted({*_inputs_in(tuple(bases)), *_archives(bases, lock)})


def is_open(project: Project, item: Input, lock: Lock) -> bool:
    """Return whether an input has no pin, or is a source that was not read."""
    is_source = any(base.source.item == item for base in project.bases.values())
    return lock.is_open(item) or (is_source and item.key not in lock.sources)


def open_inputs(project: Project, base: str, lock: Lock) -> list[str]:
    """Return the keys of a base's inputs that no release can have: open ones, and those of this machine."""
    inputs = base_inputs(project, base, lock)
    return [item.key for item in inputs if item.is_here or is_open(project, item, lock)]


def archives(base: Base, lock: Lock) -> tuple[Dependency, ...]:
    """Return what the build of a base's source downloads, without what the base has in its place."""
    needed = lock.dependencies(base.source.item)
    return tuple(one for one in needed if one.name not in base.dependencies)


def _archives(bases: Iterable[Base], lock: Lock) -> Iterator[Input]:
    return (Input(InputKind.URL, one.url) for base in bases for one in archives(base, lock))


def source_problems(project: Project, name: str, lock: Lock) -> Iterator[str]:
    """Yield how a base differs from what was read of its source."""
    base = project.bases[name]
    item, facts = base.source.item, lock.sources.get(base.source.item.key)
    sha256 = lock.pins.get(item.key, Pin()).sha256
    if base.source.sha256 and sha256 and base.source.sha256 != sha256:
        yield f"bases.{name}.source.sha256: {item.spec} has {sha256}, not {base.source.sha256}. Correct it."
    if facts is None:
        return
    if facts.version != base.ort_version:
        yield (
            f"bases.{name}.onnxruntime: {base.ort_version} stands there, and {VERSION_FILE} of {item.spec} "
            f"has {facts.version}. Change one of the two."
        )
    for other, override in base.dependencies.items():
        if override.has_headers_alone and other not in HEADERS:
            yield (
                f"bases.{name}.dependencies.{other}: its headers do not suffice, it is compiled. Name its "
                "source, or after a # the folder of the package that is its source."
            )
    known = {one.name: one.content for one in facts.dependencies}
    for unknown in (one for one in base.dependencies if one not in known):
        called = next((one for one, content in known.items() if content == unknown), "")
        hint = f"Did you mean {called}?" if called else nearest(unknown, known)
        yield (
            f"bases.{name}.dependencies.{unknown}: no build of {item.spec} downloads it "
            f"(its {LIST}: {', '.join(known)}). {hint or 'Take it out.'}"
        )


def open_of_packages(project: Project, base: str, lock: Lock) -> list[str]:
    """Return the keys of the inputs without a pin that packages compiled on a base need.

    These are the base's inputs and, unless the host library is compiled too, the official wheel of its
    version.
    """
    wheel = ort_wheel(project.bases[base].ort_version)
    is_open = project.onnxruntime.host is Host.WHEEL and lock.is_open(wheel)
    return [*([wheel.key] if is_open else []), *open_inputs(project, base, lock)]


def all_inputs(project: Project, lock: Lock) -> tuple[Input, ...]:
    """Return every input that any variant on any base can need, and those of the tests, sorted by key.

    The archives that a source's own build would download are included once ``lock`` has what was read of it.
    Folders are not: they are pinned in each run.
    """
    versions = project.ort_versions
    official = [one for one in project.variants.values() if one.is_official]
    variants = {*project.providers.values()}
    variants |= {on_platform(one, LINUX_ARM64) for one in variants if one.platform == LINUX}
    providers = (provider_wheel(variant, version) for variant in variants for version in versions)
    images = (Input.wheel(wheel.spec, LINUX_ARM64) for wheel in project.image.wheels.values())
    repacked = (ort_wheel(project.official_version(variant), variant.platform) for variant in official)
    bundled = (wheel for variant in official for wheel in project.of(variant).bundled)
    compiling = {name: one for name, one in project.toolkits.items() if one.compiler}
    own = {*_inputs_in(replace(project, toolkits=compiling)), *_gpu_wheels(project)}
    wanted = {*own, *repacked, *bundled, *providers, *images, *TEST_INPUTS, *map(host_wheel, PLUGIN_HOSTS)}
    wanted |= {*_archives(project.bases.values(), lock)}
    return _sorted(item for item in wanted if item.kind is not InputKind.TREE)


def _sorted(inputs: Iterable[Input]) -> tuple[Input, ...]:
    return tuple(sorted(inputs, key=lambda item: item.key))


def python_wheel_requirements(project: Project) -> tuple[str, ...]:
    """Return the official wheels, ``name==version``, that ``./run wheel`` uses for every Python."""
    versions = project.ort_versions
    linux = (provider for provider in project.providers.values() if provider.platform == LINUX)
    others = {provider_wheel(one, version).requirement for one in linux for version in versions}
    return tuple(sorted(others | {wheel.requirement for wheel in _gpu_wheels(project)}))


WITHOUT_GPU_WHEEL = "With onnxruntime.host: source, only bundle.wheels: true makes ./run lock pin it."
"""Advice where Python's ONNX Runtime for CUDA is needed and has no pin."""


def _gpu_wheels(project: Project) -> Iterator[Input]:
    """Yield the official GPU wheels for linux-x64; none if the host library is compiled too."""
    of_source = project.onnxruntime.host is Host.SOURCE and project.onnxruntime.origin is not Origin.WHEEL
    if not of_source or project.bundle.wheels:
        yield from map(ort_wheel, project.ort_versions)


def _inputs_in(value: object) -> Iterator[Input]:
    """Yield all inputs below a value, so that the inputs of a new key are found too."""
    if isinstance(value, Input):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _inputs_in(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from _inputs_in(part)
    elif is_dataclass(value):
        yield from value.archives if isinstance(value, RedistToolkit) else ()
        for key in fields(value):
            yield from _inputs_in(getattr(value, key.name))
