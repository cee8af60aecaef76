"""``index.json``: the one file of a release a client reads to choose (docs/schemas/index.schema.json)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Sequence, Tuple

from builder.core.manifest import Driver, Manifest
from builder.core.release import LocalFile
from builder.core.shape import from_json, to_json
from builder.core.variant import ModelRule
from builder.errors import ParseError, SchemaError, ValidationError

FORMAT = 1
LAYOUTS = ("full",)
SUPPORT = ("native", "jit", "partial", "none")

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class IndexOrt:
    """Which ONNX Runtime a package holds. ``profile`` is ``None`` for a repacked official wheel."""

    version: str
    origin: str
    profile: Optional[str]


@dataclass(frozen=True)
class IndexPackage:
    """One package: where it is, what its bytes are, what it runs on."""

    name: str
    file: str
    """Asset name; the client resolves it against the index's own URL or directory."""
    variant: str
    platform: str
    layout: str
    """``full``: one archive with everything in it."""
    size: int
    """Bytes of the archive."""
    sha256: str
    unpacked_size: int
    """Bytes of the files in it."""
    onnxruntime: IndexOrt
    capabilities: Mapping[str, str]
    """``native``, ``jit``, ``partial`` or ``none`` by compute capability, as found in the package."""
    driver: Driver
    generations: Tuple[str, ...]


@dataclass(frozen=True)
class Index:
    """All of ``index.json``; fields stand in the file's order."""

    format: int
    tag: str
    packages: Tuple[IndexPackage, ...]
    models: Tuple[ModelRule, ...]


def build_index(
    tag: str, packages: Sequence[Tuple[Manifest, LocalFile]], models: Sequence[ModelRule]
) -> Index:
    """The index of a release's packages, sorted by name: the same packages give the same index."""
    entries = sorted((_entry(manifest, file) for manifest, file in packages), key=lambda entry: entry.name)
    return Index(format=FORMAT, tag=tag, packages=tuple(entries), models=tuple(models))


def dumps(index: Index) -> str:
    """The file's text: the same index gives the same bytes."""
    return json.dumps(to_json(index), indent=2, ensure_ascii=False) + "\n"


def loads(text: str, where: str) -> Index:
    """Read ``index.json``; ``where`` (its URL or path) begins every problem.

    Raises ``ParseError`` (no JSON), ``SchemaError`` (every wrong key) or ``ValidationError`` (a format we do
    not know, or values that cannot be: a file name with a slash, a sha256 that is none, one name twice).
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ParseError(f"{where}: not JSON: {error}. Was a web page saved under this name?") from error
    _require_known_format(value, where)
    try:
        index = from_json(Index, value)
    except SchemaError as error:
        raise SchemaError([f"{where}: {problem}" for problem in error.problems]) from error
    problems = list(_impossible(index))
    if problems:
        raise ValidationError([f"{where}: {problem}" for problem in problems])
    return index


def _entry(manifest: Manifest, file: LocalFile) -> IndexPackage:
    ort = manifest.onnxruntime
    return IndexPackage(
        name=manifest.name,
        file=file.name,
        variant=manifest.variant,
        platform=manifest.platform,
        layout="full",
        size=file.size,
        sha256=file.sha256,
        unpacked_size=manifest.unpacked_size,
        onnxruntime=IndexOrt(version=ort.version, origin=ort.origin, profile=ort.profile),
        capabilities=manifest.capabilities,
        driver=manifest.driver,
        generations=manifest.generations,
    )


def _require_known_format(value: object, where: str) -> None:
    found = value.get("format") if isinstance(value, dict) else None
    if found is not None and (type(found) is not int or found != FORMAT):
        raise ValidationError(
            f"{where}: format {found!r}; this version reads format {FORMAT}. Update ortpacks."
        )


def _impossible(index: Index) -> Iterator[str]:
    if not index.packages:
        yield "packages: the list is empty"
    seen = set()
    for number, package in enumerate(index.packages):
        where = f"packages[{number}]"
        if package.file in seen:
            yield f"{where}.file: {package.file} is listed twice"
        seen.add(package.file)
        yield from _impossible_values(package, where)


def _impossible_values(package: IndexPackage, where: str) -> Iterator[str]:
    # The client joins ``file`` to a folder of its own, so it must be a plain name.
    if _FILE.fullmatch(package.file) is None:
        yield f"{where}.file: {package.file!r} is not a plain file name"
    if _SHA256.fullmatch(package.sha256) is None:
        yield f"{where}.sha256: {package.sha256!r} is not 64 hex digits"
    if package.layout not in LAYOUTS:
        yield f"{where}.layout: {package.layout!r}; known: {', '.join(LAYOUTS)}. Update ortpacks."
    for key in ("size", "unpacked_size"):
        if getattr(package, key) <= 0:
            yield f"{where}.{key}: {getattr(package, key)} bytes"
    for capability, support in package.capabilities.items():
        if support not in SUPPORT:
            yield f"{where}.capabilities.{capability}: {support!r}; known: {', '.join(SUPPORT)}"
