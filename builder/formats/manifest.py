"""``manifest.json`` lists a package's files, versions and device code. Fields: docs/package-format.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping, Optional, Sequence, Tuple, Union

from builder.errors import SchemaError, ValidationError
from builder.facts.gpu.architectures import Arch
from builder.formats.json_values import (
    OPTIONAL,
    from_json,
    parse_json,
    problem_of_text,
    read_document,
    require_valid,
    to_json,
)
from builder.formats.missing_kernels import MissingBelow, MissingKernels, cannot_run
from builder.formats.package_names import CUDA, MANIFEST, PackageForm, problems_of_support
from builder.formats.text import printable


@dataclass(frozen=True)
class ModelRule:
    """One line of the table of models. The first line whose minimums a machine meets is recommended."""

    model: str
    device: str
    """``gpu`` or ``cpu``."""
    vram_mib: int = 0
    cores: int = 0
    ram_gib: int = 0


FORMAT = 4

MANIFEST_LIMIT = 16 * 2**20
"""The largest manifest that is read, in bytes; a real one has some ten thousand."""

_WITHOUT_KERNELS = 3
"""The previous format, which has no ``cannot_run``: that follows from its profile."""

MANIFEST_HEAD = 128
"""The number of bytes at the start of a file that ``is_manifest`` needs."""

_OUR_MANIFEST = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"name":\s*"ortpacks-')


def is_manifest(name: str, head: bytes) -> bool:
    """Return whether a file is a manifest of this project's packages, by its name and first bytes."""
    return name.rpartition("/")[2] == MANIFEST and _OUR_MANIFEST.match(head) is not None


@dataclass(frozen=True)
class FileEntry:
    """One file of the package. ``path`` is relative to the package's root; ``size`` in bytes."""

    path: str
    size: int
    sha256: str
    source: str
    """``Input.key`` of the wheel that the file is from, or ``built``."""
    member: Optional[str]
    """Path inside that wheel; ``None`` for a compiled file."""
    packed: bool
    """Whether the archive holds the file; if not, the client takes it from its wheel (layout thin)."""
    licence: str
    """Path of the file's licence text in the package."""
    vendor: str
    modified: bool
    """Whether the bytes differ from the source's. Only ONNX Runtime's provider library is changed (RUNPATH),
    never a file of NVIDIA's."""
    soname: Optional[str]
    needed: Tuple[str, ...]


@dataclass(frozen=True)
class WheelEntry:
    """A wheel that files are from, with the size in bytes and the sha256 of the wheel itself."""

    source: str
    """``Input.key``: ``wheel:nvidia-cublas-cu12==12.9.1.4``."""
    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class CoverageEntry:
    """One library's device code: the number of fatbin containers, and the architectures in any of them."""

    path: str
    containers: int
    sass: Tuple[str, ...]
    ptx: Tuple[str, ...]


@dataclass(frozen=True)
class UnitFacts:
    """CUDA units that are compiled for the same architectures (``facts.ort.units.UnitSet``)."""

    name: str
    sass: str
    """Their architectures: ``80 90a``."""
    units: Optional[int] = None
    launched: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True)
class CompiledSource:
    """The source that was compiled, and for which architectures its CUDA units were."""

    purl: str
    units: Tuple[UnitFacts, ...]
    """Units of a full provider, those for the whole list first; empty where all are for the whole list."""


@dataclass(frozen=True)
class OrtEntry:
    """The ONNX Runtime in the package, and how it was made."""

    version: str
    origin: str
    origin_reason: str
    profile: Optional[str]
    host: str
    cannot_run: Tuple[MissingKernels, ...] = ()
    """Operators with CUDA kernels in the official build of this version and none in this package."""
    cannot_run_below: Tuple[MissingBelow, ...] = field(default=(), metadata=OPTIONAL)
    """Operators that do not run on the oldest of the GPUs that the package is for."""
    source: Optional[CompiledSource] = field(default=None, metadata=OPTIONAL)
    """``None`` where nothing was compiled, and in a package that does not say it."""


@dataclass(frozen=True)
class BaseEntry:
    """The base that the package was compiled on; its name is ``none`` where nothing was compiled."""

    name: str
    reason: str
    revision: Optional[str]
    """``sha256:`` and the digest of the image, or of the list of an assembled base's parts. ``None`` where
    nothing was compiled, no registry could be asked, or an old version of ortpacks kept no list."""


@dataclass(frozen=True)
class Driver:
    """The NVIDIA drivers that a package runs with: the oldest version, and the last branch for these GPUs."""

    floor: str
    ceiling: Optional[str]


@dataclass(frozen=True)
class PluginEntry:
    """What a stock host must have to register the package's library, as read from the compiled source."""

    library: str
    """Path of the library in the package: ``lib/libonnxruntime_providers_cuda.so``."""
    names: Tuple[str, ...]
    """Names of the execution providers that the library makes."""
    oldest_host: str
    """The oldest version of ONNX Runtime whose host registers it: ``1.24.4``."""
    api_version: int
    """``ORT_API_VERSION`` of the compiled source."""
    contrib_schemas: Optional[str]
    """sha256 of the source's schemas of contrib operators; ``None`` where the source has none."""


@dataclass(frozen=True)
class Manifest:
    """All of ``manifest.json``, with fields in the file's order."""

    format: int
    name: str
    layout: str
    """``full`` or ``thin``."""
    variant: str
    sm: Tuple[str, ...]
    """The architectures for which the variant promises native code; ``coverage`` has those that the libraries
    hold."""
    generations: Tuple[str, ...]
    platform: str
    provider: str
    """The execution provider that the package is for, one of ``formats.package_names.PROVIDERS``."""
    glibc: Optional[str]
    """The newest ``GLIBC_`` version that a library of the package needs; ``None`` where none needs any."""
    glibcxx: Optional[str]
    """The newest ``GLIBCXX_`` version that a library of the package needs; ``None`` where none needs any."""
    onnxruntime: OrtEntry
    base: BaseEntry
    cuda: Optional[str]
    """CUDA's version; ``None``, like ``cudnn`` and ``driver``, in a package without CUDA."""
    cudnn: Optional[str]
    toolkit: str
    """Version of the nvcc that compiled the package, or ``official`` for a repacked wheel."""
    driver: Optional[Driver]
    capabilities: Mapping[str, str]
    """``native``, ``jit``, ``partial`` or ``none`` by compute capability; empty for other providers than
    CUDA."""
    coverage: Tuple[CoverageEntry, ...]
    models: Tuple[ModelRule, ...]
    wheels: Tuple[WheelEntry, ...]
    """Every wheel that ``files`` names, sorted by source."""
    files: Tuple[FileEntry, ...]
    plugin: Optional[PluginEntry] = field(default=None, metadata=OPTIONAL)
    """``None`` in a package of form provider."""

    @property
    def form(self) -> PackageForm:
        """Return whether stock hosts register the package's provider, or its own host library opens it."""
        return PackageForm.PLUGIN if self.plugin else PackageForm.PROVIDER

    @property
    def packed(self) -> Tuple[FileEntry, ...]:
        """Return the files in the archive, without the manifest itself."""
        return tuple(entry for entry in self.files if entry.packed)

    @property
    def absent(self) -> Tuple[FileEntry, ...]:
        """Return the files that the client takes from wheels; empty in layout full."""
        return tuple(entry for entry in self.files if not entry.packed)

    @property
    def unpacked_size(self) -> int:
        """Return the size in bytes of the files in the archive, without the manifest itself."""
        return sum(entry.size for entry in self.packed)

    @property
    def installed_size(self) -> int:
        """Return the size in bytes of all files, from the archive and from wheels."""
        return sum(entry.size for entry in self.files)


def loads(text: Union[str, bytes], where: str) -> Manifest:
    """Return the manifest in ``text``, a string or UTF-8; ``where`` names its package in errors.

    The previous format is read too, and its manifest gets the ``cannot_run`` that its profile implies. Raises
    ``ParseError`` (no JSON), ``ValidationError`` (an unknown format, or more than ``MANIFEST_LIMIT`` bytes)
    or ``SchemaError`` (naming the wrong keys and values).
    """
    file = f"{where}: {MANIFEST}"
    if len(text) > MANIFEST_LIMIT:
        raise ValidationError(f"{file} has more than the {MANIFEST_LIMIT:,} bytes that are read.")
    older = "Build the package again, or take it from a newer release."
    known = [_WITHOUT_KERNELS, FORMAT]
    manifest = read_document(Manifest, text, file, known, older=older, upgrade=_upgraded)
    require_valid(_problems_of(manifest), file, SchemaError)
    return manifest


def _problems_of(manifest: Manifest) -> Iterator[str]:
    for text in manifest.sm:
        yield from problem_of_text(Arch.parse, text, "sm")
    has_driver = manifest.driver is not None
    yield from problems_of_support(manifest.provider, manifest.capabilities, has_driver=has_driver)
    for unit in manifest.onnxruntime.source.units if manifest.onnxruntime.source else ():
        where = "onnxruntime.source.units"
        yield from (
            problem for arch in unit.sass.split() for problem in problem_of_text(Arch.parse, arch, where)
        )
        if unit.launched is not None and len(unit.launched) != 2:  # noqa: PLR2004
            yield f"{where}: launched has the first and the last device"
    plugin = manifest.plugin
    if plugin and (plugin.library not in {file.path for file in manifest.files} or manifest.provider != CUDA):
        yield f"plugin: {printable(plugin.library)} is no file of a package for CUDA"
    for key, value in (("sm", manifest.sm), ("cuda", manifest.cuda), ("cudnn", manifest.cudnn)):
        if bool(value) != (manifest.provider == CUDA):
            yield f"{key}: {value!r} does not go with provider {printable(manifest.provider)}"


def _upgraded(value: object) -> object:
    if not isinstance(value, dict) or value.get("format") != _WITHOUT_KERNELS:
        return value
    return {**value, "format": FORMAT, "onnxruntime": with_missing_kernels(value.get("onnxruntime"))}


def with_missing_kernels(ort: object) -> object:
    """Return ``onnxruntime`` of format 3 with the ``cannot_run`` that its profile implies."""
    if not isinstance(ort, dict):
        return ort
    profile, version = ort.get("profile"), ort.get("version")
    missing = cannot_run(profile, version) if isinstance(profile, str) and isinstance(version, str) else ()
    return {**ort, "cannot_run": to_json(missing)}


_FLOORS = {"vram_mib": 0, "cores": 0, "ram_gib": 0}
"""The minimums that a line of an application's own table may leave out."""


@dataclass(frozen=True)
class _ModelTable:
    models: Tuple[ModelRule, ...]


def loads_models(text: str, where: str) -> Tuple[ModelRule, ...]:
    """Return an application's own table of models: a JSON file with ``models`` in the form of ``index.json``.

    Raises ``ParseError``, ``SchemaError`` or ``ValidationError``, each beginning with ``where``.
    """
    models = from_json(_ModelTable, _with_floors(parse_json(text, where)), where).models
    require_valid(_problems_of_table(models), where)
    return models


def _with_floors(table: object) -> object:
    if not isinstance(table, dict) or not isinstance(table.get("models"), list):
        return table
    lines = [{**_FLOORS, **line} if isinstance(line, dict) else line for line in table["models"]]
    return {**table, "models": lines}


def _problems_of_table(models: Sequence[ModelRule]) -> Iterator[str]:
    if not models:
        yield "models: the list is empty"
    for number, rule in enumerate(models):
        where = f"models[{number}]"
        if not rule.model:
            yield f"{where}.model: the name is empty"
        if rule.device not in {"gpu", "cpu"}:
            yield f"{where}.device: {rule.device!r}; known: gpu, cpu"
        if rule.device == "cpu" and rule.vram_mib:
            yield f"{where}.vram_mib: a cpu line has no floor of GPU memory"
        for name in _FLOORS:
            if getattr(rule, name) < 0:
                yield f"{where}.{name}: {getattr(rule, name)} is below 0"
