"""Heat maps of GPU support: their rows are libraries and manifests' promises, their columns capabilities.

The columns are the capabilities in NVIDIA's list of GPUs, and each unlisted one (8.8, 10.7) whose own code or
promise is in one of the sources. ``heatmap_text`` and ``pictures`` draw maps. Every text in a map is
printable, even if names of libraries are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from builder.binary.coverage import LibraryCoverage, Support
from builder.binary.library import Inspected
from builder.binary.verdict import X86_64, Verdict, fits, gpus_of, together, verdicts
from builder.formats.text import listed, printable
from builder.gpu.architectures import Capability
from builder.gpu.table import DEVICES, GPUS, Gpu
from builder.package.promise import InspectedSource, Promise
from builder.report.sentences import SPECIALISED, counts, notes, parts_notes, promise_notes, summary

MARKS = {Support.NATIVE: "N", Support.JIT: "j", Support.PARTIAL: "~", Support.NONE: "."}
"""The letters of cells, for readers who do not see colours."""

MEANINGS = {
    Support.NATIVE: "native",
    Support.JIT: "compiled by the driver at first use (JIT)",
    Support.PARTIAL: "some kernels missing",
    Support.NONE: "not at all",
}

UNNAMED = DOUBT = "?"
"""The mark of a GPU without an answer, and, after a letter, of a doubtful answer, which a note explains."""

TOTAL, PARTIAL_TOTAL = "all libraries", "all that can be read"

PROMISE = "manifest promises"

NOTHING_TO_RUN = "nothing to run in its device code"

_NAMED = 3
"""Most libraries that a cell of the total names; further ones are counted."""

HEADS = {gpu.capability: f"{gpu.capability} ({gpu.generation}: {gpu.cards})" for gpu in GPUS}

_OTHER_MACHINES = f": its machines are ARM, and this is for {X86_64}."


@dataclass(frozen=True)
class Cell:
    """One row's support of one capability. ``hover`` is a sentence with the numbers of containers."""

    support: Support | None
    """``None`` for a GPU that a manifest does not name, or whose machines cannot load the library."""
    hover: str
    doubtful: bool = False
    was: Support | None = None
    """The support by the old source, where two sources are compared."""

    @property
    def mark(self) -> str:
        """The cell's text: a letter, after the old letter where it differs, and ``?`` if doubtful."""
        if self.support is None:
            return UNNAMED
        before = f"{MARKS[self.was]}→" if self.was and self.was is not self.support else ""
        return f"{before}{MARKS[self.support]}{DOUBT * self.doubtful}"

    @property
    def kind(self) -> str:
        """The support's name, or ``unnamed``, by which pictures choose a colour."""
        return self.support.value if self.support else "unnamed"


@dataclass(frozen=True)
class HeatMapRow:
    """One row: a cell for each capability, or no cells and a ``remark`` with the reason."""

    name: str
    cells: tuple[Cell, ...] = ()
    remark: str = ""
    containers: int = 0
    specialised: bool = False
    unread: bool = False
    summary: bool = False
    """Whether the row is that of a whole source: a manifest's promise, or all libraries together."""

    @property
    def count(self) -> str:
        """The number of containers as text, empty where none were counted."""
        return f"{self.containers:,}" if self.containers else ""


@dataclass(frozen=True)
class Note:
    """One sentence on the library or manifest ``name``."""

    name: str
    text: str


@dataclass(frozen=True)
class Detail:
    """Sections, images and dependencies of one readable library."""

    name: str
    nothing_to_run: int
    sections: tuple[tuple[str, int], ...]
    images: tuple[tuple[str, str], ...]
    """Kinds of images and their architectures: ``("SASS", "75 80 86")``."""
    soname: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class HeatMap:
    """The heat map of one source: its libraries in their order, and all of them together."""

    label: str
    gpus: tuple[Gpu, ...]
    """The columns, the same for all maps that are drawn together."""
    folder: str
    """The folder of all libraries, with its slash; ``rows`` leave it out of the names. Empty without one."""
    sentence: str
    promises: tuple[HeatMapRow, ...]
    """One row for each manifest of a CUDA package in the source."""
    rows: tuple[HeatMapRow, ...]
    total: HeatMapRow | None
    """The row of all libraries together; ``None`` where none has anything to run."""
    notes: tuple[Note, ...]
    details: tuple[Detail, ...]

    @property
    def all_rows(self) -> tuple[HeatMapRow, ...]:
        """Promises, libraries and the total, in the order in which they are drawn."""
        return (*self.promises, *self.rows, *([self.total] if self.total else []))

    @property
    def overall(self) -> HeatMapRow:
        """The row of all libraries together; without one, a row with the sentence as its remark."""
        return self.total or HeatMapRow(self.label, remark=self.sentence)

    @property
    def starred(self) -> bool:
        """Whether any library is specialised and has the star that ``sentences.SPECIALISED`` explains."""
        return any(row.specialised for row in self.rows)

    @property
    def texts(self) -> tuple[str, ...]:
        """The notes below the rows as sentences, the note on the star last."""
        star = [f"* {SPECIALISED}."] if self.starred else []
        return (*(f"{note.name}: {note.text}." for note in self.notes), *star)


def heat_maps(sources: Iterable[InspectedSource]) -> tuple[HeatMap, ...]:
    """Return one map for each source, all with the same columns."""
    known = tuple(sources)
    held = gpus_of([item for source in known for item in source.libraries])
    named = {device for source in known for promise in source.promises for device in promise.capabilities}
    unlisted = {gpu.capability for gpu in GPUS if not gpu.listed}.intersection(named, DEVICES)
    gpus = tuple(gpu for gpu in GPUS if gpu in held or gpu.capability in unlisted)
    return tuple(_heat_map(source, gpus) for source in known)


def _heat_map(source: InspectedSource, gpus: tuple[Gpu, ...]) -> HeatMap:
    libraries = source.libraries
    folder = common_folder([item.name for item in libraries])
    named = [(printable(item.name[len(folder) :]), item) for item in libraries]
    return HeatMap(
        label=printable(source.label),
        gpus=gpus,
        folder=printable(folder),
        sentence=summary(libraries),
        promises=tuple(_promise(promise, gpus) for promise in source.promises if promise.sm),
        rows=tuple(_row(name, item, gpus) for name, item in named),
        total=_total(named, gpus),
        notes=(
            *(Note(promise.path, text) for promise in source.promises for text in promise_notes(promise)),
            *(Note(name, "; ".join(notes(item))) for name, item in named if notes(item)),
            *(Note(head, text) for head, text in parts_notes(libraries, len(folder))),
        ),
        details=tuple(_detail(name, item) for name, item in named if not item.problem),
    )


def _promise(promise: Promise, gpus: Iterable[Gpu]) -> HeatMapRow:
    """Return the row of a manifest; its name has the manifest's folder, unless that is the source's top."""
    cells = (_promised_cell(gpu, promise.capabilities.get(gpu.capability)) for gpu in gpus)
    return HeatMapRow(f"{promise.folder} {PROMISE}".lstrip(), tuple(cells), summary=True)


def _promised_cell(gpu: Gpu, support: Support | None) -> Cell:
    if support is None:
        why = "is older than this GPU and does" if gpu.listed else "does"
        return Cell(None, f"{HEADS[gpu.capability]}: the manifest {why} not name it.")
    return Cell(support, f"{_sentence(gpu.capability, support)} So the manifest promises.")


def common_folder(names: Sequence[str]) -> str:
    """Return the folder that all paths have in common, with its slash; empty where there is none."""
    folders = zip(*(name.split("/")[:-1] for name in names), strict=False)
    same = takewhile(lambda parts: len(set(parts)) == 1, folders)
    return "".join(f"{parts[0]}/" for parts in same)


def _detail(name: str, item: Inspected) -> Detail:
    coverage = item.coverage
    kinds = (("SASS", coverage.sass), ("PTX", coverage.ptx), ("LTO IR", coverage.ltoir)) if coverage else ()
    return Detail(
        name=name,
        nothing_to_run=coverage.nothing_to_run if coverage else 0,
        sections=tuple((printable(where), count) for where, count in coverage.sections.items())
        if coverage
        else (),
        images=tuple((kind, " ".join(map(str, arches))) for kind, arches in kinds if arches),
        soname=printable(item.soname or ""),
        needed=tuple(printable(library) for library in item.needed),
    )


def _row(name: str, item: Inspected, gpus: Iterable[Gpu]) -> HeatMapRow:
    coverage = item.coverage
    if item.problem:
        return HeatMapRow(name, remark=f"cannot be read: {printable(item.problem)}", unread=True)
    if coverage is None:
        return HeatMapRow(name, remark="none in containers" if item.raw else "no device code")
    if item.runnable is None:
        return HeatMapRow(name, remark=NOTHING_TO_RUN, containers=coverage.containers)
    found = verdicts(item)
    cells = tuple(_cell(item, coverage, gpu, found[gpu.capability]) for gpu in gpus)
    return HeatMapRow(name, cells, containers=coverage.containers, specialised=coverage.specialised)


def _cell(item: Inspected, coverage: LibraryCoverage, gpu: Gpu, verdict: Verdict) -> Cell:
    if not fits(item, gpu):
        return Cell(None, HEADS[gpu.capability] + _OTHER_MACHINES)
    hover = f"{_sentence(gpu.capability, verdict.support)} {counts(coverage.tally[gpu.capability])}."
    return _verdict_cell(verdict, hover)


def _verdict_cell(verdict: Verdict, hover: str) -> Cell:
    why = f" Doubtful: {verdict.doubt}." if verdict.doubt else ""
    return Cell(verdict.support, hover + why, doubtful=bool(verdict.doubt))


def _total(named: Sequence[tuple[str, Inspected]], gpus: Iterable[Gpu]) -> HeatMapRow | None:
    items = [item for _, item in named]
    shown = tuple(gpus)
    found, names = together(items, shown), {item.name: name for name, item in named}
    if not found:
        return None
    cells = []
    for gpu in shown:
        verdict = found[gpu.capability]
        if not verdict.because:
            cells.append(Cell(None, HEADS[gpu.capability] + _OTHER_MACHINES))
            continue
        blamed = [names[name] for name in verdict.because]
        sentence = _sentence(gpu.capability, verdict.support) + _because(verdict.support, blamed)
        cells.append(_verdict_cell(verdict, sentence))
    name = PARTIAL_TOTAL if any(item.problem for item in items) else TOTAL
    containers = sum(item.runnable.containers for item in items if item.runnable)
    return HeatMapRow(name, tuple(cells), containers=containers, summary=True)


def _sentence(device: Capability, support: Support) -> str:
    return f"{HEADS[device]}: {MEANINGS[support]}."


def _because(support: Support, names: list[str]) -> str:
    """Return a sentence with the libraries that determine the total; empty where it is native."""
    if support is Support.NATIVE:
        return ""
    return f" Because of {listed(names, _NAMED)}."
