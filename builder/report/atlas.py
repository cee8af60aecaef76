"""This module makes the atlas: a row per wheel with its GPUs, and what each release won and lost.

The rows are grouped by project, then by platform, newest first. Verdicts are computed from the records with
the current rules and table of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from packaging.version import Version

from builder.binary.comparison import Comparison, Effect, compare
from builder.binary.verdict import Verdict, together
from builder.gpu.architectures import Capability
from builder.gpu.table import PRODUCTS, Gpu
from builder.package.promise import InspectedSource
from builder.report.changes import sentence
from builder.report.heatmap import HeatMap, heat_maps
from builder.report.wheel_record import WheelRecord

FORMAT = 1


@dataclass(frozen=True)
class ReleaseStep:
    """The difference between a wheel and the wheel of the previous recorded release for the same platform."""

    before: Version
    sentence: str
    changed: bool
    """Whether the support of any GPU differs."""
    lost: bool
    """Whether the support of a GPU is worse than that by the previous wheel."""


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
    found = {}
    for (new, now), (old, then) in pairwise(zip(records, sources, strict=True)):
        if (new.name, new.platform) == (old.name, old.platform):
            difference = compare(then.libraries, now.libraries)
            found[new.filename] = _step(old.version, difference)
    return found


def _step(before: Version, difference: Comparison) -> ReleaseStep:
    effects = {change.effect for change in difference.changes.values()}
    changed, lost = bool(effects - {Effect.SAME}), bool(effects & {Effect.LOST, Effect.WORSE})
    return ReleaseStep(before, sentence(difference), changed, lost)


def document(atlas: Atlas) -> dict[str, object]:
    """Return the JSON form; its schema is ``docs/schemas/atlas.schema.json``."""
    return {
        "format": FORMAT,
        "gpus": [
            {
                "capability": str(gpu.capability),
                "generation": gpu.generation,
                "cards": gpu.cards,
                "products": PRODUCTS.get(gpu.capability),
            }
            for gpu in atlas.gpus
        ],
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
        "capabilities": {str(device): found.document() for device, found in entry.verdicts.items()},
        "before": str(step.before) if step else None,
        "changes": step.sentence if step else None,
        "read": record.date,
        "compared": [
            {"reader": one.reader, "explained": len(one.explained), "unexplained": len(one.unexplained)}
            for one in record.compared
        ],
    }
