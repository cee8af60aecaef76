"""``index.json`` is the one file of a release that a client reads to choose a package.

Schema: docs/schemas/index.schema.json. Several entries may be one package: its layouts and forms of archive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, Optional, Sequence, Set, Tuple

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import SUPPORT
from builder.facts.gpu.devices import parse_driver
from builder.formats.json_values import OPTIONAL, problem_of_text, read_document, require_valid
from builder.formats.manifest import Driver, Manifest, ModelRule, PluginEntry, with_missing_kernels
from builder.formats.missing_kernels import MissingBelow, MissingKernels
from builder.formats.package_names import ARCHIVE_SUFFIXES, Layout, PackageForm, form_of, problems_of_support
from builder.formats.stored_file import StoredFile, problems_of_file
from builder.formats.text import grouped

FORMAT = 4

INDEX_LIMIT = 16 << 20
"""The largest index that is read, in bytes; a real one has a few thousand."""

_WITHOUT_KERNELS = 3
"""The previous format, which has neither ``cannot_run`` nor ``host``."""

LAYOUTS = tuple(layout.value for layout in Layout)

_GLIBC = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})+")


@dataclass(frozen=True)
class IndexOrt:
    """The ONNX Runtime in a package. ``profile`` is ``None`` for a repacked official wheel."""

    version: str
    origin: str
    profile: Optional[str]
    host: Optional[str] = None
    """The origin of the host library, ``wheel`` or ``source``; ``None`` in an index of format 3."""
    cannot_run: Tuple[MissingKernels, ...] = ()
    """Operators with CUDA kernels in the official build of this version and none in this package."""
    cannot_run_below: Tuple[MissingBelow, ...] = field(default=(), metadata=OPTIONAL)
    """Operators that do not run on the oldest of the GPUs that the package is for."""


@dataclass(frozen=True)
class IndexPackage:
    """One package: its archive, its content, and the GPUs, systems and drivers it runs on."""

    name: str
    file: str
    """Name of the archive. The client resolves it against the index's URL or folder."""
    variant: str
    platform: str
    provider: str
    """The execution provider that the package is for: ``cuda``, ``cpu``, ``directml`` or ``coreml``."""
    glibc: Optional[str]
    """The oldest glibc that the package loads with, ``2.34``; ``None`` where it needs none, as on other
    systems."""
    layout: str
    """``full`` for one archive with all files, ``thin`` for one without NVIDIA's libraries."""
    size: int
    """Size of the archive in bytes."""
    sha256: str
    parts: Tuple[StoredFile, ...]
    """Always empty: no archive is cut into parts."""
    unpacked_size: int
    """Size of the files in the archive, in bytes."""
    installed_size: int
    """Size of the installed files in bytes: larger than ``unpacked_size`` in layout thin."""
    onnxruntime: IndexOrt
    capabilities: Mapping[str, str]
    """``native``, ``jit``, ``partial`` or ``none`` by compute capability, as read from the libraries; empty
    for other providers than CUDA."""
    driver: Optional[Driver]
    """The drivers that the package runs with; ``None`` for other providers than CUDA."""
    generations: Tuple[str, ...]
    plugin: Optional[PluginEntry] = field(default=None, metadata=OPTIONAL)
    """What a stock host needs to register the package's library; ``None`` in a package of form provider."""

    @property
    def form(self) -> PackageForm:
        """Return whether stock hosts register the package's provider, or its own host library opens it."""
        return PackageForm.PLUGIN if self.plugin else PackageForm.PROVIDER


@dataclass(frozen=True)
class Index:
    """All of ``index.json``, with fields in the file's order."""

    format: int
    tag: str
    packages: Tuple[IndexPackage, ...]
    models: Tuple[ModelRule, ...]


def build_index(
    tag: str, packages: Sequence[Tuple[Manifest, StoredFile]], models: Sequence[ModelRule]
) -> Index:
    """Return the index of a release's packages, sorted by file name.

    The same packages in any order give the same index.
    """
    entries = sorted(
        (entry_of(manifest, stored) for manifest, stored in packages), key=lambda item: item.file
    )
    return Index(format=FORMAT, tag=tag, packages=tuple(entries), models=tuple(models))


def by_support(package: IndexPackage) -> Mapping[str, str]:
    """Return the compute capabilities for each kind of support: ``{"native": "5.0, 5.2"}``."""
    kinds = grouped((support, capability) for capability, support in package.capabilities.items())
    return {support: ", ".join(capabilities) for support, capabilities in kinds.items()}


def loads(text: str, where: str) -> Index:
    """Return the index in ``text``; each error begins with ``where``, the URL or path.

    The previous format is read too. Raises ``ParseError`` (no JSON), ``SchemaError`` (naming every wrong key)
    or ``ValidationError`` (an unknown format or an invalid value: a file name with a slash, a malformed
    sha256, a name listed twice).
    """
    index = read_document(
        Index,
        text,
        where,
        [_WITHOUT_KERNELS, FORMAT],
        advice="Was a web page saved under this name?",
        older="Install with the ortpacks.pyz of the same release.",
        upgrade=_upgraded,
    )
    require_valid(_problems_of(index), where)
    return index


def entry_of(manifest: Manifest, stored: StoredFile) -> IndexPackage:
    """Return the index entry of the package with this manifest."""
    ort = manifest.onnxruntime
    return IndexPackage(
        name=manifest.name,
        file=stored.file,
        variant=manifest.variant,
        platform=manifest.platform,
        provider=manifest.provider,
        glibc=manifest.glibc,
        layout=manifest.layout,
        size=stored.size,
        sha256=stored.sha256,
        parts=(),
        unpacked_size=manifest.unpacked_size,
        installed_size=manifest.installed_size,
        onnxruntime=IndexOrt(
            ort.version, ort.origin, ort.profile, ort.host, ort.cannot_run, ort.cannot_run_below
        ),
        capabilities=manifest.capabilities,
        driver=manifest.driver,
        generations=manifest.generations,
        plugin=manifest.plugin,
    )


def _upgraded(value: object) -> object:
    if not isinstance(value, dict) or value.get("format") != _WITHOUT_KERNELS:
        return value
    packages = value.get("packages")
    if isinstance(packages, list):
        packages = [_with_missing_kernels(package) for package in packages]
    return {**value, "format": FORMAT, "packages": packages}


def _with_missing_kernels(package: object) -> object:
    if not isinstance(package, dict):
        return package
    ort = with_missing_kernels(package.get("onnxruntime"))
    return {**package, "onnxruntime": {**ort, "host": None} if isinstance(ort, dict) else ort}


def _problems_of(index: Index) -> Iterator[str]:
    if not index.packages:
        yield "packages: the list is empty"
    names: Set[str] = set()
    for number, package in enumerate(index.packages):
        where = f"packages[{number}]"
        yield from _problems_of_files(package, where, names)
        yield from _problems_of_values(package, where)


def _problems_of_files(package: IndexPackage, where: str, names: Set[str]) -> Iterator[str]:
    """Yield the problems of the archive. ``names`` are the file names of earlier packages."""
    if not package.file.endswith(ARCHIVE_SUFFIXES):
        yield f"{where}.file: {package.file!r} ends in neither {' nor '.join(ARCHIVE_SUFFIXES)}"
    file = StoredFile(package.file, package.size, package.sha256)
    yield from (f"{where}.{problem}" for problem in problems_of_file(file))
    if package.file in names:
        yield f"{where}.file: {package.file} is listed twice"
    names.add(package.file)
    if package.parts:
        yield f"{where}.parts: this ortpacks reads whole archives only. Install with that release's own."


def _problems_of_values(package: IndexPackage, where: str) -> Iterator[str]:
    if package.layout not in LAYOUTS:
        yield f"{where}.layout: {package.layout!r}; known: {', '.join(LAYOUTS)}. Update ortpacks."
    if package.glibc is not None and _GLIBC.fullmatch(package.glibc) is None:
        yield f"{where}.glibc: {package.glibc!r} is not a version like 2.34"
    for problem in problems_of_support(
        package.provider, package.capabilities, has_driver=package.driver is not None
    ):
        yield f"{where}.{problem}"
    if package.unpacked_size <= 0:
        yield f"{where}.unpacked_size: {package.unpacked_size} bytes"
    if package.installed_size < package.unpacked_size:
        yield f"{where}.installed_size: {package.installed_size} bytes, less than the archive's files"
    for capability, support in package.capabilities.items():
        if support not in SUPPORT:
            yield f"{where}.capabilities.{capability}: {support!r}; known: {', '.join(SUPPORT)}"
        yield from problem_of_text(Capability.parse, capability, f"{where}.capabilities")
    if package.driver is not None:
        yield from problem_of_text(parse_driver, package.driver.floor, f"{where}.driver.floor")
        if package.driver.ceiling is not None:
            yield from problem_of_text(parse_driver, package.driver.ceiling, f"{where}.driver.ceiling")


def distinct(packages: Iterable[IndexPackage]) -> Tuple[IndexPackage, ...]:
    """Return each package once, in the index's order.

    Among the entries of a package, full comes before thin, then zstd before gzip.
    """
    entries = grouped((_identity(package), package) for package in packages)
    return tuple(min(same, key=_archive_rank) for same in entries.values())


def offers(packages: Iterable[IndexPackage], chosen: IndexPackage) -> Tuple[IndexPackage, ...]:
    """Return the entries that install the same as ``chosen``, best first: layouts and forms of archive."""
    return tuple(sorted((package for package in packages if is_same(package, chosen)), key=_archive_rank))


def is_same(one: IndexPackage, other: IndexPackage) -> bool:
    """Return whether both entries install the same package."""
    return _identity(one) == _identity(other)


def _identity(package: IndexPackage) -> Tuple[object, ...]:
    runs_on = (package.glibc, package.driver, tuple(sorted(package.capabilities.items())))
    return (
        package.variant,
        package.platform,
        package.provider,
        package.onnxruntime,
        package.plugin,
        *runs_on,
    )


def _archive_rank(package: IndexPackage) -> Tuple[int, int, str]:
    """Return a sort key of layout and form.

    It ends with the file name, so that the order of entries does not matter.
    """
    form = ARCHIVE_SUFFIXES.index(form_of(package.file).value)
    return (LAYOUTS.index(package.layout), form, package.file)
