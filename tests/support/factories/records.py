"""Factories of manifests and packages of a few bytes for the tests of build records."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from builder.config.variants import Preset
from builder.contents.build_record import BuildRecord, CompileRecord, record_of
from builder.files.digest import LocalFile
from builder.formats.json_values import json_text
from builder.formats.manifest import BaseEntry, CoverageEntry, FileEntry, Manifest
from tests.support.factories import releases
from tests.support.factories.archiving import accept, archive, content

PROVIDER = "lib/libonnxruntime_providers_cuda.so"


LEGACY = replace(
    releases.manifest("legacy", version="1.21.0", profile="lean"),
    base=BaseEntry("assembled", "asked for", None),
    toolkit="12.4",
    coverage=(
        CoverageEntry("lib/libcublas.so.12", 9, ("50", "120"), ("120",)),
        CoverageEntry(PROVIDER, 54, ("50", "52", "60", "61", "70"), ()),
    ),
    wheels=(),
    files=(),
)
"""Manifest of a compiled package, with no files yet."""

MODERN = replace(
    releases.manifest("modern", origin="wheel", profile=None),
    base=LEGACY.base,
    toolkit="official",
    coverage=(CoverageEntry(PROVIDER, 184, ("60", "70", "75", "80", "86", "90a"), ("90",)),),
    wheels=(),
    files=(),
)
"""Manifest of a package of the repacked official wheel, with no files yet."""


TOOK = CompileRecord(
    units=528,
    compilations=530,
    cache_hits=3,
    cpu_s=3391,
    wall_s=1748,
    runs=1,
    jobs=2,
    busy_percent=97,
    peak_mib=1830,
    longest_unit_s=761,
)


def with_files(made: Manifest, sizes: Mapping[str, int]) -> Manifest:
    """Return the manifest with files of these sizes by path; names with "onnxruntime" have that vendor."""
    return replace(made, files=tuple(_entry(path, size) for path, size in sizes.items()))


def package(folder: Path, manifest: Manifest, contents: Mapping[str, bytes]) -> LocalFile:
    """Write an archive with this manifest and these files into ``folder``."""
    told = with_files(manifest, {path: len(data) for path, data in contents.items()})
    made = content(folder / "files", contents, json_text(told).encode())
    return archive().write(folder / f"{told.name}.tar.zst", made, Preset.FAST, accept)


def _entry(path: str, size: int) -> FileEntry:
    vendor = "onnxruntime" if "onnxruntime" in path else "nvidia"
    return replace(releases.file_entry(path, size), vendor=vendor)


def _recorded(made: Manifest, took: CompileRecord | None) -> BuildRecord:
    command = f"./run build --variant {made.variant} --base assembled"
    date, sha256 = "2026-11-21T17:05:00Z", "ab" * 32
    return record_of(made, f"{made.name}.tar.zst", sha256, date=date, command=command, compiled=took)


COMPILED, REPACKED = _recorded(LEGACY, TOOK), _recorded(MODERN, None)
"""Records of the two packages: one was compiled, the other repacked."""
