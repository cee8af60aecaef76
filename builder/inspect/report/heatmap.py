"""Heat maps of GPU support: their rows are libraries and manifests' promises, their columns capabilities.

The columns are the capabilities in NVIDIA's list of GPUs, and each unlisted one (8.8, 10.7) whose own code or
promise is in one of the sources. ``text`` and ``command`` draw maps. Every text in a map but
those of ``details`` is printable, even if names of libraries are not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from builder.binary.coverage import Support
from builder.binary.library import Inspected
from builder.binary.verdict import X86_64, Verdict, fits, gpus_of, together, verdicts
from builder.contents.sentences import SPECIALISED, counts, notes, parts_notes, promise_notes, summary
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import DEVICES, GPUS, Generation, Gpu, by_generation
from builder.formats.text import grouped, listed, printable

MARKS = {Support.NATIVE: "N", Support.JIT: "j", Support.PARTIAL: "~", Support.NONE: "."}
"""The letters of cells, for readers who do not see colours."""

MEANINGS = {
    Support.NATIVE: "native",
    Support.JIT: "compiled by the driver at first use (JIT)",
    Support.PARTIAL: "kernels missing",
    Support.NONE: "not at all",
}

LEGEND = [(support.value, MARKS[support], MEANINGS[support]) for support in Support]
"""Name, letter and meaning of each cell, for templates."""

UNNAMED = DOUBT = "?"
"""The mark of a GPU without an answer, and, after a letter, of a doubtful answer, which a note explains."""

TOTAL, PARTIAL_TOTAL = "all libraries", "all that can be read"

PROMISE = "manifest promises"

NOTHING_TO_RUN = "nothing to run in its device code"

_NAMED = 3
"""Most libraries that a cell of the total or a note names; further ones are counted."""

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
    details: tuple[tuple[str, Inspected], ...]
    """Name and reading of each readable library. The texts of a reading are as its file has them."""

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
            *(
                Note(listed(names, _NAMED), text)
                for text, names in grouped(("; ".join(notes(item)), name) for name, item in named).items()
                if text
            ),
            *(Note(head, text) for head, text in parts_notes(libraries, len(folder))),
        ),
        details=tuple((name, item) for name, item in named if not item.problem),
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


def _row(name: str, item: Inspected, gpus: Iterable[Gpu]) -> HeatMapRow:
    coverage = item.coverage
    if item.problem:
        return HeatMapRow(name, remark=f"cannot be read: {printable(item.problem)}", unread=True)
    if coverage is None:
        return HeatMapRow(name, remark="none in containers" if item.raw else "no device code")
    if item.runnable is None:
        return HeatMapRow(name, remark=NOTHING_TO_RUN, containers=coverage.containers)
    by_device = verdicts(item)
    cells = tuple(
        _cell(
            gpu,
            by_device[gpu.capability] if fits(item, gpu) else None,
            f" {counts(coverage.tally[gpu.capability])}.",
        )
        for gpu in gpus
    )
    return HeatMapRow(name, cells, containers=coverage.containers, specialised=coverage.specialised)


def _cell(gpu: Gpu, verdict: Verdict | None, how: str) -> Cell:
    """Return the cell of a verdict, which ``how`` explains; ``None`` for a GPU whose machines differ."""
    if verdict is None:
        return Cell(None, HEADS[gpu.capability] + _OTHER_MACHINES)
    why = f" Doubtful: {verdict.doubt}." if verdict.doubt else ""
    hover = f"{_sentence(gpu.capability, verdict.support)}{how}{why}"
    return Cell(verdict.support, hover, doubtful=bool(verdict.doubt))


def _total(named: Sequence[tuple[str, Inspected]], gpus: Sequence[Gpu]) -> HeatMapRow | None:
    items = [item for _, item in named]
    by_device, names = together(items, gpus), {item.name: name for name, item in named}
    if not by_device:
        return None
    cells = tuple(
        _cell(gpu, verdict if verdict.because else None, _because(verdict, names))
        for gpu, verdict in zip(gpus, by_device.values(), strict=True)
    )
    name = PARTIAL_TOTAL if any(item.problem for item in items) else TOTAL
    containers = sum(item.runnable.containers for item in items if item.runnable)
    return HeatMapRow(name, cells, containers=containers, summary=True)


def _sentence(device: Capability, support: Support) -> str:
    return f"{HEADS[device]}: {MEANINGS[support]}."


def _because(verdict: Verdict, names: Mapping[str, str]) -> str:
    """Return a sentence with the libraries that determine the total; empty where it is native."""
    if verdict.support is Support.NATIVE:
        return ""
    return f" Because of {listed([names[name] for name in verdict.because], _NAMED)}."


_TEXT_LEGEND = "   ".join(
    [*(f"{MARKS[support]} {MEANINGS[support]}" for support in Support), f"{DOUBT} doubtful"]
)

_LONGEST = 44
"""Most characters of a name in the line of its row; a longer name gets a line of its own above the row."""

_CELL_OF_TEXT = 3

_GAP = "  "

_LINE = 110

_LIBRARY = "library"

_STAR = "*"


def text(maps: Sequence[HeatMap]) -> str:
    """Return all maps as tables of text, separated by blank lines, with the legend of marks at the end."""
    return "\n\n".join([*("\n".join(_map_lines(heat_map)) for heat_map in maps), _TEXT_LEGEND])


def _map_lines(heat_map: HeatMap) -> Iterator[str]:
    names = [_row_name(row) for row in heat_map.all_rows]
    width = max([*(len(name) for name in names if len(name) <= _LONGEST), len(_LIBRARY)])
    least = max([_CELL_OF_TEXT, *(len(cell.mark) for row in heat_map.all_rows for cell in row.cells)])
    generations = by_generation(heat_map.gpus)
    heads = list(_columns(generations, (str(gpu.capability) for gpu in heat_map.gpus), least))
    titles = [f"{generation.name:^{len(head)}}" for generation, head in zip(generations, heads, strict=True)]
    yield f"{heat_map.label}, in {heat_map.folder}" if heat_map.folder else heat_map.label
    yield _GAP.join([" " * width, *titles]).rstrip()
    yield _GAP.join([f"{_LIBRARY:<{width}}", *heads, "containers"])
    for row, name in zip(heat_map.all_rows, names, strict=True):
        if len(name) > width:  # a line of its own
            yield name
        first = f"{name if len(name) <= width else '':<{width}}"
        if row.cells:
            marks = _columns(generations, (cell.mark for cell in row.cells), least)
            yield _GAP.join([first, *marks, f"{row.count:>10}"]).rstrip()
        else:
            yield _GAP.join([first, row.remark])
    yield ""
    yield from wrapped(heat_map.sentence)
    for note in heat_map.texts:
        yield from wrapped(note)


def _columns(generations: Iterable[Generation], entries: Iterable[str], least: int) -> Iterator[str]:
    """Yield the entries of each generation as one text, centred in the width of the generation's name.

    ``least`` is the least width of an entry in characters.
    """
    left = iter(entries)
    for generation in generations:
        widths = [max(len(str(gpu.capability)), least) for gpu in generation.gpus]
        group = " ".join(f"{next(left):^{width}}" for width in widths)
        yield f"{group:^{len(generation.name)}}"


def _row_name(row: HeatMapRow) -> str:
    return f"{row.name} {_STAR}" if row.specialised else row.name


def wrapped(sentence: str) -> Sequence[str]:
    """Return a sentence wrapped to lines of ``_LINE`` characters."""
    return textwrap.wrap(sentence, _LINE, subsequent_indent="  ", break_on_hyphens=False)
