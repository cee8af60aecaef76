"""The verb atlas reads wheels, keeps a small record of each reading, and makes a page of all records.

The atlas has a row per wheel with its GPUs, and what each release won and lost, grouped by project, then by
platform, newest first. Verdicts are computed from the records with the current rules and table of GPUs. The
page needs no other file; its script searches cards and projects.
"""

from __future__ import annotations

import base64
import hashlib
import json
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from jinja2 import BaseLoader
from packaging.version import Version

from builder.binary.comparison import Comparison, Effect, compare
from builder.binary.library import Inspected
from builder.binary.verdict import Verdict, together
from builder.config.inputs import Input, Pin
from builder.contents.sentences import SPECIALISED
from builder.contents.supported_gpus import InspectedSource
from builder.errors import IntegrityError, NothingToDoError, ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import PRODUCTS, Gpu, by_generation
from builder.files.atomic_write import scratch_folder, write_file
from builder.files.digest import file_digest
from builder.formats.package_names import PLATFORMS
from builder.inspect.command import opener
from builder.inspect.opener import is_url, require_path, shown
from builder.inspect.reading import inspect
from builder.inspect.report.changes import sentence
from builder.inspect.report.heatmap import LEGEND, HeatMap, heat_maps
from builder.inspect.report.wheel_record import (
    WheelRecord,
    dumps,
    loads,
    record_of,
    require_wheel,
    verdicts_of,
)
from builder.io.git import revision_of
from builder.io.templates import template_environment
from builder.io.wheel import download_wheel
from builder.io.wiring import Wiring

RECORDS = Path("docs", "atlas")
"""The folder of the records, relative to the project's folder."""


def add(wiring: Wiring, what: str) -> Path:
    """Read a wheel, write its record and return the record's path.

    ``what`` is a path, a URL or ``NAME==VERSION``. Raises what ``opened`` and ``fetched`` do.
    """
    with fetched(wiring, what) as wheel, opened(wiring, wheel) as read:
        return write_record(wiring, read.record)


def write_record(wiring: Wiring, record: WheelRecord) -> Path:
    """Write a record to its file in ``docs/atlas`` and return the file's path."""
    file = record_file(wiring.root, record.filename)
    write_file(file, dumps(record).encode())
    wiring.reporter.say(f"{file.relative_to(wiring.root)}  {file.stat().st_size:,} bytes")
    return file


def record_file(root: Path, filename: str) -> Path:
    """Return the path of a wheel's record."""
    return root / RECORDS / f"{filename.removesuffix('.whl')}.json"


class ReadWheel(NamedTuple):
    """A wheel that was read, with the files of its libraries by name; they exist inside the block."""

    record: WheelRecord
    libraries: Sequence[Inspected]
    files: Mapping[str, Path]


@contextmanager
def opened(wiring: Wiring, wheel: Path) -> Iterator[ReadWheel]:
    """Read a wheel and yield the result. The record's peak memory is that of this process so far.

    Raises ``ValidationError`` for a name that is not a wheel's, and what ``Opener.files`` does.
    """
    require_wheel(wheel.name)
    digest = file_digest(wheel)
    began = time.perf_counter()
    with opener(wiring, wiring.reporter).files(str(wheel)) as files:
        libraries = inspect(files.libraries)
        seconds = time.perf_counter() - began
        revision = revision_of(wiring.root, wiring.runner)
        record = record_of(
            wheel.name,
            digest,
            libraries,
            date=datetime.now(UTC).date().isoformat(),
            commit=revision.commit if revision and not revision.dirty else None,
            seconds=seconds,
            peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )
        yield ReadWheel(record, libraries, dict(files.libraries))


@contextmanager
def fetched(wiring: Wiring, what: str, pin: Pin | None = None) -> Iterator[Path]:
    """Yield the wheel at a path, or a wheel that is fetched for the block: from a URL, or by pip.

    ``NAME==VERSION`` is fetched by pip for ``linux-x64``, ``NAME==VERSION@PLATFORM`` for another platform;
    with ``pin`` the file must have the pin's name. Raises ``TransferError``, ``DiskError``,
    ``ValidationError``, and ``IntegrityError`` for bytes that differ from the hash of the index, of the pin,
    or behind ``#sha256=`` in a URL.
    """
    _name, is_requirement, version = what.partition("==")
    if not is_url(what) and (not is_requirement or "/" in version):
        yield require_path(what)
        return
    with scratch_folder(wiring.dist / "atlas", needed=0) as folder:
        folder.mkdir()
        with wiring.reporter.step(f"fetch {shown(what)}"):
            file = _by_url(wiring, what, folder) if is_url(what) else _by_pip(wiring, what, pin, folder)
        yield file


def _by_url(wiring: Wiring, url: str, folder: Path) -> Path:
    parts = urlsplit(url)
    file = folder / PurePosixPath(unquote(parts.path)).name
    require_wheel(file.name)
    opener(wiring, wiring.reporter).transfer.download(url, file)
    _require(file, parse_qs(parts.fragment).get("sha256", [""])[0])
    return file


def _by_pip(wiring: Wiring, what: str, pin: Pin | None, folder: Path) -> Path:
    item = Input.wheel(what)
    if item.platform not in PLATFORMS:
        raise ValidationError(
            f"{what}: {item.platform!r} is no platform", advice=f"Name one of {', '.join(PLATFORMS)}."
        )
    file = download_wheel(wiring.runner, item, pin, folder)
    _require(file, pin.sha256 if pin else "")
    return file


def _require(file: Path, sha256: str) -> None:
    """Raise ``IntegrityError`` unless the file has this sha256; an empty ``sha256`` is not compared."""
    actual = file_digest(file).sha256 if sha256 else ""
    if actual != sha256:
        raise IntegrityError(f"{file.name}: wanted sha256 {sha256}, got {actual}", advice="Fetch it again.")


def read_records(root: Path) -> tuple[WheelRecord, ...]:
    """Return all records.

    Raises ``ConfigError`` for a damaged record and ``NothingToDoError`` if there is none.
    """
    files = sorted((root / RECORDS).glob("*.json"))
    if not files:
        raise NothingToDoError(f"No record in {root / RECORDS}. Make one: ./run atlas --add NAME==VERSION")
    return tuple(loads(file.read_bytes(), str(file.relative_to(root))) for file in files)


def make(wiring: Wiring) -> Atlas:
    """Write ``atlas.html`` and ``atlas.json`` from all records, and update each record's verdicts.

    Raises what ``read_records`` does.
    """
    records = [_update_verdicts(wiring, record) for record in read_records(wiring.root)]
    atlas = atlas_of(records)
    page = wiring.dist / "atlas.html"
    write_file(page, atlas_page(atlas, wiring.loader).encode())
    write_file(wiring.dist / "atlas.json", f"{json.dumps(document(atlas), indent=1)}\n".encode())
    counts = ((len(records), "wheel"), (len(atlas.projects), "project"))
    wheels, projects = (f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts)
    wiring.reporter.say(f"{page} and atlas.json: {wheels} of {projects}")
    return atlas


def _update_verdicts(wiring: Wiring, record: WheelRecord) -> WheelRecord:
    """Return the record with the verdicts of the current rules; write it to its file if they differ."""
    now = verdicts_of(record.source().libraries)
    if now == record.verdicts:
        return record
    differ: dict[tuple[str, str], list[str]] = {}
    for device in sorted({*now, *record.verdicts}, key=Capability.parse):
        before, after = (verdicts.get(device, "not told") for verdicts in (record.verdicts, now))
        if before != after:
            differ.setdefault((before, after), []).append(device)
    said = "; ".join(f"{' '.join(where)} was {old}, is {new}" for (old, new), where in differ.items())
    judged = replace(record, verdicts=now)
    file = record_file(wiring.root, record.filename)
    write_file(file, dumps(judged).encode())
    wiring.reporter.say(f"{file.relative_to(wiring.root)}: {said}")
    return judged


FORMAT = 1


@dataclass(frozen=True)
class ReleaseStep:
    """The difference between a wheel and the wheel of the previous recorded release for the same platform."""

    before: Version
    sentence: str
    changed: bool
    """Whether the support of any GPU differs."""
    lost: bool
    """Whether the support of any GPU is worse than with the previous wheel."""


@dataclass(frozen=True)
class AtlasEntry:
    """One wheel of the atlas. ``verdicts`` is empty where the wheel has nothing to run."""

    record: WheelRecord
    map: HeatMap
    verdicts: Mapping[Capability, Verdict]
    step: ReleaseStep | None
    """``None`` for the oldest wheel of a project and platform."""


@dataclass(frozen=True)
class Atlas:
    """All wheels by the name of their project."""

    gpus: tuple[Gpu, ...]
    projects: Mapping[str, tuple[AtlasEntry, ...]]

    @property
    def entries(self) -> tuple[AtlasEntry, ...]:
        """The wheels of all projects."""
        return tuple(entry for entries in self.projects.values() for entry in entries)


def atlas_of(records: Iterable[WheelRecord]) -> Atlas:
    """Return the atlas of one or more records."""
    known = sorted(records, key=_place, reverse=True)
    sources = [record.source() for record in known]
    steps = _steps(known, sources)
    maps = heat_maps(sources)
    entries = [
        AtlasEntry(record, shown, together(source.libraries), steps.get(record.filename))
        for record, source, shown in zip(known, sources, maps, strict=True)
    ]
    entries.sort(key=lambda entry: entry.record.name)  # stable: the newest stays first
    projects = groupby(entries, key=lambda entry: entry.record.name)
    return Atlas(maps[0].gpus, {name: tuple(group) for name, group in projects})


def _place(record: WheelRecord) -> tuple[str, str, Version, str]:
    return record.name, record.platform, record.version, record.filename


def _steps(records: Sequence[WheelRecord], sources: Sequence[InspectedSource]) -> Mapping[str, ReleaseStep]:
    """Return the releases' steps by the wheel's file name; ``records`` are sorted, newest first."""
    by_file = {}
    for (new, now), (old, then) in pairwise(zip(records, sources, strict=True)):
        if (new.name, new.platform) == (old.name, old.platform):
            difference = compare(then.libraries, now.libraries)
            by_file[new.filename] = _step(old.version, difference)
    return by_file


def _step(before: Version, difference: Comparison) -> ReleaseStep:
    effects = {change.effect for change in difference.changes.values()}
    changed, lost = bool(effects - {Effect.SAME}), bool(effects & {Effect.LOST, Effect.WORSE})
    return ReleaseStep(before, sentence(difference), changed, lost)


def document(atlas: Atlas) -> dict[str, object]:
    """Return the JSON form; its schema is ``docs/schemas/atlas.schema.json``."""
    return {
        "format": FORMAT,
        "gpus": _gpus(atlas),
        "wheels": [_wheel(entry) for entry in atlas.entries],
    }


def _wheel(entry: AtlasEntry) -> dict[str, object]:
    record, step = entry.record, entry.step
    return {
        "name": record.name,
        "version": str(record.version),
        "platform": record.platform,
        "filename": record.filename,
        "sha256": record.sha256,
        "size": record.size,
        "sentence": entry.map.sentence,
        "capabilities": {str(device): verdict.document() for device, verdict in entry.verdicts.items()},
        "before": str(step.before) if step else None,
        "changes": step.sentence if step else None,
        "read": record.date,
        "compared": [
            {
                "reader": comparison.reader,
                "explained": len(comparison.explained),
                "unexplained": len(comparison.unexplained),
            }
            for comparison in record.compared
        ],
    }


def atlas_page(atlas: Atlas, loader: BaseLoader) -> str:
    """Return the HTML text; the same atlas always gives the same text."""
    templates, generations = template_environment(loader, html=True), by_generation(atlas.gpus)
    gpus = json.dumps(_gpus(atlas)).replace("</", r"<\/")
    script = templates.get_template("atlas.js").render(gpus=gpus)
    return templates.get_template("atlas.html.j2").render(
        atlas=atlas,
        generations=generations,
        first={generation.gpus[0].capability for generation in generations},
        script=script,
        legend=LEGEND,
        specialised=SPECIALISED,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _gpus(atlas: Atlas) -> list[dict[str, str | None]]:
    return [
        {
            "capability": str(gpu.capability),
            "generation": gpu.generation,
            "cards": gpu.cards,
            "products": PRODUCTS.get(gpu.capability),
        }
        for gpu in atlas.gpus
    ]
