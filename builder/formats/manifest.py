"""``manifest.json``: what a package holds and what was found in it. Fields: docs/package-format.md."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple, Union

from builder.errors import SchemaError
from builder.formats.json_values import from_json, parse_json, require_format, to_json
from builder.formats.missing_kernels import MissingKernels, cannot_run
from builder.formats.package_names import CUDA, MANIFEST, impossible
from builder.gpu.architectures import Arch


@dataclass(frozen=True)
class ModelRule:
    """One line of the model table: the first whose floors are met wins."""

    model: str
    device: str
    """``gpu`` or ``cpu``."""
    vram_mib: int = 0
    cores: int = 0
    ram_gib: int = 0


FORMAT = 4

_WITHOUT_KERNELS = 3
"""The format before, which does not say what a package cannot run: its profile does."""

MANIFEST_HEAD = 128
"""Bytes at the start of a file that ``is_manifest`` has to see."""

_OUR_MANIFEST = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"name":\s*"ortpacks-')


def is_manifest(name: str, head: bytes) -> bool:
    """Whether a file is the manifest of one of our packages, by its name and first bytes."""
    return name.rpartition("/")[2] == MANIFEST and _OUR_MANIFEST.match(head) is not None


@dataclass(frozen=True)
class FileEntry:
    """One file of the package. ``path`` is relative to the package's root; ``size`` in bytes."""

    path: str
    size: int
    sha256: str
    source: str
    """``Input.key`` of the wheel it comes from, or ``built``."""
    member: Optional[str]
    """Path inside that wheel; ``None`` for what was built."""
    packed: bool
    """Whether the archive holds it; if not, the client takes it from its wheel (layout thin)."""
    licence: str
    """Path of its licence text in the package."""
    vendor: str
    modified: bool
    """Whether its bytes differ from the source's: RUNPATH set on ORT's own provider, never NVIDIA's files."""
    soname: Optional[str]
    needed: Tuple[str, ...]


@dataclass(frozen=True)
class WheelEntry:
    """A wheel that files come from, and the bytes of the wheel itself; ``size`` in bytes."""

    source: str
    """``Input.key``: ``wheel:nvidia-cublas-cu12==12.9.1.4``."""
    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class CoverageEntry:
    """The device code found in one library: fatbin containers, and the architectures in any of them."""

    path: str
    containers: int
    sass: Tuple[str, ...]
    ptx: Tuple[str, ...]


@dataclass(frozen=True)
class OrtEntry:
    """Which ONNX Runtime is inside, and how it was made."""

    version: str
    origin: str
    origin_reason: str
    profile: Optional[str]
    host: str
    cannot_run: Tuple[MissingKernels, ...] = ()
    """Operators that the official build of this version has CUDA kernels for, and this package has none."""


@dataclass(frozen=True)
class BaseEntry:
    """The base it was compiled on; its name is ``none`` where none had a part in it."""

    name: str
    reason: str
    revision: Optional[str]
    """``sha256:`` and the digest of the image, or of the list of what was assembled; ``None`` where nothing
    was compiled, no registry could be asked, or the ortpacks of that day kept no list."""


@dataclass(frozen=True)
class Driver:
    """The NVIDIA drivers it runs with: version floor, and the last branch that knows these GPUs."""

    floor: str
    ceiling: Optional[str]


@dataclass(frozen=True)
class Manifest:
    """All of ``manifest.json``; fields stand in the file's order."""

    format: int
    name: str
    layout: str
    """``full`` or ``thin``."""
    variant: str
    sm: Tuple[str, ...]
    """The architectures the variant promises native code for: what was asked for, not what was found."""
    generations: Tuple[str, ...]
    platform: str
    provider: str
    """The execution provider it is for, one of ``formats.package_names.PROVIDERS``."""
    glibc: Optional[str]
    """Newest ``GLIBC_`` version that any of its libraries asks for; ``None`` for none: no Linux package."""
    glibcxx: Optional[str]
    """The same for ``GLIBCXX_``."""
    onnxruntime: OrtEntry
    base: BaseEntry
    cuda: Optional[str]
    """``None``, like ``cudnn`` and ``driver``, where nothing of CUDA is inside."""
    cudnn: Optional[str]
    toolkit: str
    """Version of the nvcc that compiled it, or ``official`` for a repacked wheel."""
    driver: Optional[Driver]
    capabilities: Mapping[str, str]
    """``native``, ``jit``, ``partial`` or ``none`` by compute capability; empty but for CUDA."""
    coverage: Tuple[CoverageEntry, ...]
    models: Tuple[ModelRule, ...]
    wheels: Tuple[WheelEntry, ...]
    """Every wheel that ``files`` names, sorted by source."""
    files: Tuple[FileEntry, ...]

    @property
    def packed(self) -> Tuple[FileEntry, ...]:
        """The files that the archive holds besides the manifest."""
        return tuple(entry for entry in self.files if entry.packed)

    @property
    def absent(self) -> Tuple[FileEntry, ...]:
        """The files that come from their wheels: none in layout full."""
        return tuple(entry for entry in self.files if not entry.packed)

    @property
    def unpacked_size(self) -> int:
        """Bytes of the files in the archive, without the manifest itself."""
        return sum(entry.size for entry in self.packed)

    @property
    def installed_size(self) -> int:
        """Bytes of all files, wherever they come from."""
        return sum(entry.size for entry in self.files)


def dumps(manifest: Manifest) -> str:
    """The file's text: the same manifest gives the same bytes."""
    return json.dumps(to_json(manifest), indent=2, ensure_ascii=False) + "\n"


def loads(text: Union[str, bytes], where: str) -> Manifest:
    """Read ``manifest.json``, as text or as UTF-8; ``where`` names its package in errors.

    The format before is read too, and gives what this one would have said. Raises ``ParseError`` (no JSON),
    ``ValidationError`` (a format we do not know) or ``SchemaError`` (every wrong key).
    """
    file = f"{where}: {MANIFEST}"
    value = parse_json(text, file)
    older = "Build the package again, or take it from a newer release."
    require_format(value, [_WITHOUT_KERNELS, FORMAT], file, older)
    manifest = from_json(Manifest, _upgraded(value), file)
    try:
        _require_archs(manifest)
        _require_one_provider(manifest)
    except SchemaError as error:
        raise SchemaError([f"{file}: {problem}" for problem in error.problems]) from error
    return manifest


def _require_archs(manifest: Manifest) -> None:
    try:
        for text in manifest.sm:
            Arch.parse(text)
    except ValueError as error:
        raise SchemaError(f"sm: {error}") from error


def _require_one_provider(manifest: Manifest) -> None:
    has_driver = manifest.driver is not None
    problems = [*impossible(manifest.provider, manifest.capabilities, has_driver=has_driver)]
    for key, value in (("sm", manifest.sm), ("cuda", manifest.cuda), ("cudnn", manifest.cudnn)):
        if bool(value) != (manifest.provider == CUDA):
            problems.append(f"{key}: {value!r} does not go with provider {manifest.provider}")
    if problems:
        raise SchemaError(problems)


def _upgraded(value: object) -> object:
    if not isinstance(value, dict) or value.get("format") != _WITHOUT_KERNELS:
        return value
    return {**value, "format": FORMAT, "onnxruntime": with_missing_kernels(value.get("onnxruntime"))}


def with_missing_kernels(ort: object) -> object:
    """``onnxruntime`` of a manifest or an index of format 3, and what its profile cannot run."""
    if not isinstance(ort, dict):
        return ort
    profile, version = ort.get("profile"), ort.get("version")
    missing = cannot_run(profile, version) if isinstance(profile, str) and isinstance(version, str) else ()
    return {**ort, "cannot_run": to_json(missing)}
