"""``<package>.build.json`` records how a package in ``dist`` was made and what compiling it cost.

The file is next to the package, never inside: the same inputs give the same package, but not the same times.
Schema: docs/schemas/build.schema.json. docs/builds.md is a table of such records.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern

from builder.binary.library_names import PROVIDER
from builder.errors import SchemaError
from builder.formats.json_values import from_json, parse_json, require_format
from builder.formats.manifest import Manifest
from builder.formats.package_names import ARCHIVE_SUFFIXES, LIB, stem
from builder.formats.parts import SHA256

FORMAT = 1

SUFFIX = ".build.json"


_FORMAT = "format"

_SECONDS = ("cpu_s", "wall_s", "longest_unit_s")


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

    @property
    def repeated(self) -> int:
        """Number of compilations of units that had been compiled before."""
        return max(0, self.compilations - self.units)


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


_TEXTS: Mapping[str, Pattern[str]] = {
    "package": re.compile(rf"ortpacks-[A-Za-z0-9._+-]+(?:{'|'.join(map(re.escape, ARCHIVE_SUFFIXES))})"),
    "sha256": SHA256,
    "date": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "command": re.compile(r"\./run build( [A-Za-z0-9._+-]+)+"),
}


def record_name(archive: str) -> str:
    """Return the file name of the record of an archive, or of its parts, by the archive's file name."""
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


def contradictions(record: BuildRecord, manifest: Manifest, archive: str, sha256: str) -> tuple[str, ...]:
    """Return a sentence for every key in which a record differs from its package."""
    expected = record_of(
        manifest, archive, sha256, date=record.date, command=record.command, compiled=record.compile
    )
    pairs = ((key, value, getattr(expected, key)) for key, value in vars(record).items())
    return tuple(
        f"its record says {key} {got}, the package {wanted}" for key, got, wanted in pairs if got != wanted
    )


def loads(text: str | bytes, where: str) -> BuildRecord:
    """Return the record in a text or in UTF-8 bytes; ``where`` names its file in errors.

    Raises ``ParseError`` for what is not JSON, ``ValidationError`` for an unknown format, and ``SchemaError``
    with every wrong key.
    """
    record = from_json(BuildRecord, _document(text, where), where)
    problems = [f"{where}: {problem}" for problem in _wrong(record)]
    if problems:
        raise SchemaError(problems)
    return record


def loads_compile(text: str | bytes, where: str) -> CompileRecord:
    """Return the build container's record, with its seconds rounded to whole ones.

    Raises what ``loads`` does.
    """
    found = _document(text, where)
    values = {key: _rounded(key, value) for key, value in found.items() if key != _FORMAT}
    compiled = from_json(CompileRecord, values, where)
    problems = [f"{where}: {problem}" for problem in _negative(compiled)]
    if problems:
        raise SchemaError(problems)
    return compiled


def _document(text: str | bytes, where: str) -> Mapping[str, object]:
    """Return the JSON object. Raises as ``loads`` for anything else and for an unknown format."""
    value = parse_json(text, where)
    if not isinstance(value, dict):
        raise SchemaError(f"{where}: an object is wanted, found {type(value).__name__}")
    require_format(value, [FORMAT], where)
    return value


def _rounded(key: str, value: object) -> object:
    """Return seconds as whole seconds, and any other value as it is.

    A tenth of a second is below the noise of a compile of minutes.
    """
    return round(value) if key in _SECONDS and isinstance(value, float) and math.isfinite(value) else value


def _wrong(record: BuildRecord) -> Iterator[str]:
    for key, pattern in _TEXTS.items():
        if not pattern.fullmatch(getattr(record, key)):
            yield f"{key}: {getattr(record, key)!r} is none: {pattern.pattern} is wanted"
    if record.compile:
        yield from (f"compile.{problem}" for problem in _negative(record.compile))


def _negative(compiled: CompileRecord) -> Iterator[str]:
    for key, value in vars(compiled).items():
        if value < 0:
            yield f"{key}: nothing below zero is wanted, found {value}"


_PAGE = """\
# Builds

Generated by `./run builds` from the manifests of packages and the record beside each.

- MB: millions of bytes. Provider: the CUDA provider, from whose bytes SASS and PTX were read.
- GLIBC, GLIBCXX: the newest versions that any library of the package needs.
- CPU: the time of all compilers together. Wall: the time of Ninja's runs to their last unit.
- Busy: the share of jobs times wall in which units ran; other variants may have had the other slots.
- Peak: the sum of the peaks of units that ran at once, at most. Each counts from its beginning to its end,
  although few have their peaks at one time, so the sum may exceed the machine's memory.
- Only a cold build shows the cost of a first build. A repacked wheel compiles nothing.

For comparison, CUDA providers made elsewhere: 223, 368 and 682 MB in the full builds, made by hand for the
sets of `legacy`, `modern` and `latest`, that ortpacks replaces; 436 MB in the official wheel of 1.23.2
(SASS 60 70 75 80 86 90a, PTX 90).

"""

_COLUMNS = (
    *("made by", "ORT", "profile", "host", "provider MB", "package MB", "SASS", "PTX", "GLIBC", "GLIBCXX"),
    *("units", "CPU s", "wall s", "jobs", "busy", "peak MiB", "longest unit s", "compile", "date"),
)

_FIGURES = _COLUMNS.index("compile") - _COLUMNS.index("units")


def builds_page(builds: Iterable[tuple[Manifest, BuildRecord, int]], before: str = "") -> str:
    """Return docs/builds.md: a row for each manifest, record and size in bytes, oldest GPUs first.

    Rows of the page ``before`` stay if none of the builds has their command.
    """
    rows = [_row(*build) for build in builds]
    made = {row[0] for row in rows}
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in before.splitlines() if line[:1] == "|"
    ]
    rows += [row for row in table[2:] if len(row) == len(_COLUMNS) and row[0] not in made]
    table = [[*_COLUMNS], ["---"] * len(_COLUMNS), *sorted(rows, key=_oldest_first)]
    return _PAGE + "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def _oldest_first(row: Sequence[str]) -> tuple[int, str, str]:
    """Return a row's sort key: the oldest architecture with SASS, then the command and the date."""
    sass = re.match(r"\d+", row[_COLUMNS.index("SASS")])
    return int(sass[0]) if sass else sys.maxsize, row[0], row[-1]


def _row(manifest: Manifest, record: BuildRecord, size: int) -> list[str]:
    path = f"{LIB}{PROVIDER}"
    provider = next((entry.size for entry in manifest.files if entry.path == path), 0)
    code = next((entry for entry in manifest.coverage if entry.path == path), None)
    return [
        f"`{record.command}`",
        record.ort_version,
        record.profile or "as released",
        record.host,
        f"{provider / 1e6:,.1f}",
        f"{size / 1e6:,.0f}",
        " ".join(code.sass) if code else "",
        " ".join(code.ptx) if code else "",
        manifest.glibc or "",
        manifest.glibcxx or "",
        *(_figures(record.compile) if record.compile else [""] * _FIGURES),
        _kind(record),
        record.date[: len("2026-11-21")],
    ]


def _figures(compiled: CompileRecord) -> list[str]:
    seconds = (f"{compiled.cpu_s:,}", f"{compiled.wall_s:,}")
    return [
        *(f"{compiled.units:,}", *seconds, str(compiled.jobs), f"{compiled.busy_percent} %"),
        *(f"{compiled.peak_mib:,}", f"{compiled.longest_unit_s:,}"),
    ]


def _kind(record: BuildRecord) -> str:
    """Return whether the figures are those of a first build ("cold"), as text."""
    compiled = record.compile
    if compiled is None:
        return "no record" if record.origin == "source" else "none"
    warm = [f"{compiled.cache_hits:,} units from ccache"] if compiled.cache_hits else []
    warm += [f"{compiled.repeated:,} compiled again"] if compiled.repeated else []
    kind = f"not cold: {', '.join(warm)}" if warm else "cold"
    return f"{kind}; in {compiled.runs} runs" if compiled.runs > 1 else kind
