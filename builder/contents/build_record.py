"""``<package>.build.json`` records how a package in ``dist`` was made and what compiling it cost.

The file is next to the package, never inside: the same inputs give the same package, but not the same times.
Schema: docs/schemas/build.schema.json. docs/performance.md has a table of such records.
"""

from __future__ import annotations

from dataclasses import dataclass

from builder.formats.json_values import from_json, parse_json
from builder.formats.manifest import Manifest
from builder.formats.package_names import stem

FORMAT = 1

SUFFIX = ".build.json"


@dataclass(frozen=True)
class CompileRecord:
    """Cost of compiling, as the build container wrote it; times in whole seconds."""

    units: int
    """Number of objects that were made."""
    compilations: int
    """Number of compiler starts for them: more than ``units`` if a run was killed or repeated."""
    cache_hits: int
    """Number of units that ccache answered, wholly or in part."""
    cpu_s: int
    wall_s: int
    """Seconds of all Ninja runs, each to the end of its last unit; time between runs does not count."""
    runs: int
    """Number of Ninja runs that compiled something: more than one if a build was killed."""
    jobs: int
    busy_percent: int
    """Share of ``jobs`` times ``wall_s`` in which units ran, in percent."""
    peak_mib: int
    """The most memory that units had at once, in MiB."""
    longest_unit_s: int


@dataclass(frozen=True)
class BuildRecord:
    """All of ``<package>.build.json``; fields are in the file's order."""

    format: int
    package: str
    """File name of the archive."""
    sha256: str
    """Hex sha256 of the archive; the record is valid for these bytes only."""
    variant: str
    base: str
    origin: str
    profile: str | None
    host: str
    ort_version: str
    date: str
    """Time when the package was finished, UTC: ``2026-11-21T17:05:00Z``."""
    command: str
    """The ``./run`` command that makes the package again."""
    compile: CompileRecord | None
    """Cost of compiling; ``None`` if nothing was compiled or a compile left no record."""


def record_name(archive: str) -> str:
    """Return the file name of the record of an archive, by the archive's file name."""
    return stem(archive) + SUFFIX


def record_of(
    manifest: Manifest, archive: str, sha256: str, *, date: str, command: str, compiled: CompileRecord | None
) -> BuildRecord:
    """Return the record of the package with this manifest; ``archive`` and ``sha256`` are the archive's."""
    return BuildRecord(
        format=FORMAT,
        package=archive,
        sha256=sha256,
        variant=manifest.variant,
        base=manifest.base.name,
        origin=manifest.onnxruntime.origin,
        profile=manifest.onnxruntime.profile,
        host=manifest.onnxruntime.host,
        ort_version=manifest.onnxruntime.version,
        date=date,
        command=command,
        compile=compiled,
    )


def loads_compile(text: str | bytes, where: str) -> CompileRecord:
    """Return the record that the build container wrote.

    Raises ``ParseError`` for what is not JSON, and ``SchemaError`` with every wrong key.
    """
    return from_json(CompileRecord, parse_json(text, where), where)
