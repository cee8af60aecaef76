"""Factories of manifests and packages of a few bytes for the tests of build records."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from builder.config.variants import Preset
from builder.contents.build_record import BuildRecord, CompileRecord, record_of
from builder.files.digest import LocalFile
from builder.formats import manifest as manifest_format
from builder.formats.json_values import json_text
from builder.formats.manifest import FileEntry, Manifest
from tests.support.factories import releases
from tests.support.factories.archiving import accept, archive, content

PROVIDER = "lib/libonnxruntime_providers_cuda.so"


def _manifest(made: Manifest, **entries: object) -> Mapping[str, object]:
    value: dict[str, object] = json.loads(json_text(made))
    return {**value, "models": [], "wheels": [], "files": [], **entries}


LEGACY = _manifest(
    releases.manifest("legacy", version="1.21.0", profile="lean"),
    base={"name": "assembled", "reason": "asked for", "revision": None},
    toolkit="12.4",
    coverage=[
        {"path": "lib/libcublas.so.12", "containers": 9, "sass": ["50", "120"], "ptx": ["120"]},
        {"path": PROVIDER, "containers": 54, "sass": ["50", "52", "60", "61", "70"], "ptx": []},
    ],
)
"""Manifest of a compiled package, with no files yet."""

MODERN = _manifest(
    releases.manifest("modern", origin="wheel", profile=None),
    base=LEGACY["base"],
    toolkit="official",
    coverage=[
        {"path": PROVIDER, "containers": 184, "sass": ["60", "70", "75", "80", "86", "90a"], "ptx": ["90"]}
    ],
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


def manifest(value: Mapping[str, object], sizes: Mapping[str, int] | None = None) -> Manifest:
    """Return the manifest with files of these sizes by path; names with "onnxruntime" have that vendor."""
    files = tuple(_entry(path, size) for path, size in (sizes or {}).items())
    return replace(manifest_format.loads(json.dumps(value), "a test"), files=files)


def package(folder: Path, value: Mapping[str, object], contents: Mapping[str, bytes]) -> LocalFile:
    """Write an archive with this manifest and these files into ``folder``."""
    told = manifest(value, {path: len(data) for path, data in contents.items()})
    made = content(folder / "files", contents, json_text(told).encode())
    return archive().write(folder / f"{told.name}.tar.zst", made, Preset.FAST, accept)


def _entry(path: str, size: int) -> FileEntry:
    return replace(
        releases.file_entry(path, size), vendor="onnxruntime" if "onnxruntime" in path else "nvidia"
    )


def _recorded(value: Mapping[str, object], took: CompileRecord | None) -> BuildRecord:
    command = f"./run build --variant {value['variant']} --base assembled"
    made, date, sha256 = manifest(value), "2026-11-21T17:05:00Z", "ab" * 32
    return record_of(made, f"{made.name}.tar.zst", sha256, date=date, command=command, compiled=took)


COMPILED, REPACKED = _recorded(LEGACY, TOOK), _recorded(MODERN, None)
"""Records of the two packages: one was compiled, the other repacked."""
