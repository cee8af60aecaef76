"""A heat map of GPU support: rows are libraries, columns are ``gpu.table.CAPABILITIES``.

One model for the terminal, the page and the picture: what a cell says and what it tells when pointed at.
Text in it is printable whatever the libraries are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from builder.binary.coverage import LibraryCoverage, Support, combine
from builder.binary.library import Inspected, Report
from builder.formats.text import printable
from builder.gpu.architectures import Capability
from builder.gpu.table import CAPABILITIES, MODELS
from builder.report.sentences import counts, listed, notes, summary

MARKS = {Support.NATIVE: "N", Support.JIT: "j", Support.PARTIAL: "~", Support.NONE: "."}
"""Told by more than a colour."""

MEANINGS = {
    Support.NATIVE: "native",
    Support.JIT: "compiled by the driver at first use (JIT)",
    Support.PARTIAL: "some kernels missing",
    Support.NONE: "not at all",
}

TOTAL, PARTIAL_TOTAL = "all libraries", "all that can be read"

_NAMED = 3
"""How many libraries a cell of the total names before it counts the rest."""

_HEADS = {model.device: f"{model.device} ({model.generation}: {model.cards})" for model in MODELS}


@dataclass(frozen=True)
class Cell:
    """One library on one capability. ``hover`` is a sentence with the counts."""

    support: Support
    hover: str

    @property
    def mark(self) -> str:
        """One letter."""
        return MARKS[self.support]


@dataclass(frozen=True)
class Row:
    """One library: a cell for each capability, or none and a ``remark`` that says why."""

    name: str
    cells: tuple[Cell, ...] = ()
    remark: str = ""
    containers: int = 0
    specialised: bool = False
    unread: bool = False


@dataclass(frozen=True)
class Note:
    """What to know about a library, in one sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Detail:
    """What lies in a library that could be read, and how the loader knows it. Counts are of containers."""

    name: str
    containers: int
    nothing_to_run: int
    sections: tuple[tuple[str, int], ...]
    images: tuple[tuple[str, str], ...]
    """Kinds of images and their architectures: ``("SASS", "75 80 86")``."""
    soname: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class HeatMap:
    """One source: its libraries in their order, and the worst of them together."""

    label: str
    folder: str
    """What the names of all its libraries begin with; they are shown without it."""
    sentence: str
    rows: tuple[Row, ...]
    total: Row | None
    """``None`` where nothing can run."""
    notes: tuple[Note, ...]
    details: tuple[Detail, ...]
    more: int = 0
    """Libraries that no row is left for."""


def heat_maps(reports: Iterable[Report]) -> tuple[HeatMap, ...]:
    """One for each source."""
    return tuple(_heat_map(label, libraries) for label, libraries in reports)


def shortened(maps: Iterable[HeatMap], most: int) -> Iterator[HeatMap]:
    """The same maps with ``most`` rows in all, the notes of those, and no details.

    The rows that stay are those with cells before those that cannot be read before those with nothing.
    """
    for found in maps:
        rows = _weightiest(found.rows, most)
        most -= len(rows)
        names = {row.name for row in rows}
        notes = tuple(note for note in found.notes if note.name in names)
        yield replace(found, rows=rows, notes=notes, details=(), more=len(found.rows) - len(rows))


def _weightiest(rows: Sequence[Row], count: int) -> tuple[Row, ...]:
    """So many of the rows, in their order."""
    ranked = sorted(range(len(rows)), key=lambda place: (not rows[place].cells, not rows[place].unread))
    return tuple(rows[place] for place in sorted(ranked[:count]))


def _heat_map(label: str, libraries: Sequence[Inspected]) -> HeatMap:
    folder = _common([item.name for item in libraries])
    named = [(printable(item.name[len(folder) :]), item) for item in libraries]
    return HeatMap(
        label=printable(label),
        folder=printable(folder),
        sentence=summary(libraries),
        rows=tuple(_row(name, item) for name, item in named),
        total=_total(named),
        notes=tuple(Note(name, "; ".join(notes(item))) for name, item in named if notes(item)),
        details=tuple(_detail(name, item) for name, item in named if not item.problem),
    )


def _common(names: Sequence[str]) -> str:
    """The folder that all lie in, with its slash; empty where there is none."""
    folders = zip(*(name.split("/")[:-1] for name in names), strict=False)
    same = takewhile(lambda parts: len(set(parts)) == 1, folders)
    return "".join(f"{parts[0]}/" for parts in same)


def _detail(name: str, item: Inspected) -> Detail:
    coverage = item.coverage
    kinds = (("SASS", coverage.sass), ("PTX", coverage.ptx), ("LTO IR", coverage.ltoir)) if coverage else ()
    return Detail(
        name=name,
        containers=coverage.containers if coverage else 0,
        nothing_to_run=coverage.nothing_to_run if coverage else 0,
        sections=tuple((printable(where), count) for where, count in coverage.sections.items())
        if coverage
        else (),
        images=tuple((kind, " ".join(map(str, arches))) for kind, arches in kinds if arches),
        soname=printable(item.soname or ""),
        needed=tuple(printable(library) for library in item.needed),
    )


def _row(name: str, item: Inspected) -> Row:
    coverage = item.coverage
    if item.problem:
        return Row(name, remark=f"cannot be read: {printable(item.problem)}", unread=True)
    if coverage is None:
        return Row(name, remark="no device code")
    if item.runnable is None:
        return Row(name, remark="nothing to run in its device code", containers=coverage.containers)
    return Row(name, _cells(coverage), containers=coverage.containers, specialised=coverage.specialised)


def _cells(coverage: LibraryCoverage) -> tuple[Cell, ...]:
    support = coverage.support
    return tuple(
        Cell(support[device], f"{_said(device, support[device])} {counts(coverage.tally[device])}.")
        for device in CAPABILITIES
    )


def _total(named: Sequence[tuple[str, Inspected]]) -> Row | None:
    covered = [(name, item.runnable) for name, item in named if item.runnable]
    if not covered:
        return None
    support = combine(coverage for _, coverage in covered)
    levels = [(name, coverage.support) for name, coverage in covered]
    cells = []
    for device in CAPABILITIES:
        worst = [name for name, found in levels if found[device] is support[device]]
        cells.append(Cell(support[device], _said(device, support[device]) + _because(support[device], worst)))
    name = PARTIAL_TOTAL if any(item.problem for _, item in named) else TOTAL
    return Row(name, tuple(cells), containers=sum(coverage.containers for _, coverage in covered))


def _said(device: Capability, support: Support) -> str:
    return f"{_HEADS[device]}: {MEANINGS[support]}."


def _because(support: Support, names: list[str]) -> str:
    """Which libraries bring the total down; nothing to blame where all are native."""
    if support is Support.NATIVE:
        return ""
    rest = len(names) - _NAMED
    return f" Because of {listed([*names[:_NAMED], f'{rest:,} more'] if rest > 0 else names)}."
