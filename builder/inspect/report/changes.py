"""Reports on the difference of two sources: a sentence, a heat map of changes, and bytes of code as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from builder.binary.comparison import Comparison, Effect, Pair, SupportChange, code_sizes, sorted_code
from builder.binary.coverage import Support
from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected
from builder.contents.sentences import floors_of, where
from builder.contents.supported_gpus import InspectedSource
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import Gpu
from builder.formats.text import grouped, listed, printable
from builder.inspect.report.heatmap import (
    HEADS,
    NOTHING_TO_RUN,
    PARTIAL_TOTAL,
    TOTAL,
    Cell,
    HeatMap,
    HeatMapRow,
    Note,
    common_folder,
    text,
    wrapped,
)

_WAYS = {
    Support.NATIVE: "natively",
    Support.JIT: "by JIT",
    Support.PARTIAL: "with kernels missing",
    Support.NONE: "not at all",
}

_VERBS = {
    Effect.LOST: "Lost",
    Effect.WORSE: "Worse on",
    Effect.WON: "Won",
    Effect.BETTER: "Better on",
}

_KINDS = {Kind.SASS: "SASS", Kind.PTX: "PTX", Kind.LTOIR: "LTO IR", Kind.OTHER: "unknown"}


def sentence(comparison: Comparison) -> str:
    """Return sentences on the GPUs that were lost and won, worst first, also by single libraries."""
    unread = sum(
        bool(library.problem) for pair in comparison.pairs for side in pair.sides for library in side
    )
    files = "1 library" if unread == 1 else f"{unread:,} libraries"
    caution = f" But {files} cannot be read: what changed there is not known." if unread else ""
    if not comparison.changes:
        nothing = "What can be read of both holds no" if unread else "Neither holds"
        return f"{nothing} device code that a GPU could run.{caution}"
    alike = grouped(
        ((change.effect, change.old.support, change.new.support, change.doubtful), device)
        for device, change in comparison.changes.items()
    )
    clauses = [
        f"{verb} {where(devices)}: {_WAYS[old]} before, {_WAYS[new]} now{' (doubtful)' * doubtful}."
        for effect, verb in _VERBS.items()
        for (which, old, new, doubtful), devices in alike.items()
        if which is effect
    ]
    clauses += _lost_by_one(comparison)
    same = "" if clauses else "Runs on the same GPUs as before"
    floors = list(_floors(comparison))
    if same:
        clauses = [f"{same}." if floors else f"{same}, in the same way."]
    return " ".join([*clauses, *floors]) + caution


def _floors(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each driver floor that changed: JIT's, and that of images packed with zstd."""
    before, now = (floors_of(libraries) for libraries in comparison.read)
    for what, floor in now.items():
        if floor != before[what]:
            old = before[what] or "no driver newer than the rest"
            yield f"{what} needs driver {floor} now, {old} before." if floor else f"{what} is not needed now."


def _lost_by_one(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on GPUs that a library of both sources lost while all libraries together did not."""
    alike: dict[tuple[Capability, ...], list[str]] = {}
    for pair in comparison.pairs:
        changes = pair.changes(comparison.gpus) if pair.old and pair.new and not pair.unread else {}
        lost = [device for device, change in changes.items() if change.effect is Effect.LOST]
        hidden = tuple(device for device in lost if comparison.changes[device].effect is not Effect.LOST)
        alike.setdefault(hidden, []).append(printable(pair.name.rpartition("/")[2]))
    for devices, names in alike.items():
        if devices:
            yield f"By {'itself' if len(names) == 1 else 'themselves'} {listed(names)} lost {where(devices)}."


def changes_map(
    old: InspectedSource, new: InspectedSource, comparison: Comparison, columns: Sequence[Gpu] | None = None
) -> HeatMap:
    """Return the heat map of two sources; a cell whose support changed has both letters, ``N→.``.

    ``columns``: the GPUs of the maps that are drawn with it, which include those compared (default: these).
    """
    pairs = [pair for pair in comparison.pairs if pair.has_code]
    folder = common_folder([pair.name for pair in pairs])
    named = [(printable(pair.name[len(folder) :]), pair) for pair in pairs]
    gpus = tuple(comparison.gpus if columns is None else columns)
    total = _cells(comparison.changes, gpus)
    return HeatMap(
        label=f"{printable(old.label)} → {printable(new.label)}",
        gpus=gpus,
        folder=printable(folder),
        sentence=sentence(comparison),
        promises=(),
        rows=tuple(_row(name, pair, comparison.gpus, gpus) for name, pair in named),
        total=HeatMapRow(_total_name(comparison), total, summary=True) if total else None,
        notes=tuple(_notes(named)),
        details=(),
    )


def _total_name(comparison: Comparison) -> str:
    return PARTIAL_TOTAL if any(pair.unread for pair in comparison.pairs) else TOTAL


def _row(name: str, pair: Pair, compared: Sequence[Gpu], gpus: Sequence[Gpu]) -> HeatMapRow:
    if pair.unread:
        return HeatMapRow(name, remark="one of the two cannot be read", unread=True)
    if not any(library.runnable for side in pair.sides for library in side):
        return HeatMapRow(name, remark=NOTHING_TO_RUN)
    containers = pair.new.coverage.containers if pair.new and pair.new.coverage else 0
    return HeatMapRow(name, _cells(pair.changes(compared), gpus), containers=containers)


def _cells(changes: Mapping[Capability, SupportChange], gpus: Iterable[Gpu]) -> tuple[Cell, ...]:
    return tuple(_cell(gpu, changes.get(gpu.capability)) for gpu in gpus) if changes else ()


def _cell(gpu: Gpu, change: SupportChange | None) -> Cell:
    if change is None:
        return Cell(None, f"{HEADS[gpu.capability]}: not compared, because not both sources are for it.")
    old, new = change.old, change.new
    doubts = [
        f" Doubtful {when}: {verdict.doubt}."
        for when, verdict in (("before", old), ("now", new))
        if verdict.doubt
    ]
    how = _WAYS[new.support]
    if old.support is not new.support:
        how = f"{_WAYS[old.support]} before, {how} now"
    hover = f"{HEADS[gpu.capability]}: {how}.{''.join(doubts)}"
    return Cell(new.support, hover, doubtful=bool(doubts), was=old.support)


def _notes(named: Iterable[tuple[str, Pair]]) -> Iterator[Note]:
    for name, pair in named:
        if pair.old is None:
            yield Note(name, "is new")
        elif pair.new is None:
            yield Note(name, "is gone")
        elif pair.old.name != pair.new.name:
            yield Note(name, f"was {printable(pair.old.name)}")
        for library in (pair.old, pair.new):
            if library and library.problem:
                yield Note(name, f"cannot be read: {printable(library.problem)}")


def changes_text(old: InspectedSource, new: InspectedSource, comparison: Comparison) -> str:
    """Return the text of the difference: sentence, heat map, and bytes of code before and now."""
    shown = changes_map(old, new, comparison)
    pairs = [pair for pair in comparison.pairs if pair.has_code and not pair.unread]
    sizes = [line for pair in pairs for line in _size_changes(printable(pair.name), "file", *pair.sides)]
    sizes += _size_changes(_total_name(comparison), "files", *comparison.read) if len(pairs) > 1 else ()
    head = [f"{'bytes':<20}{'before':>16}{'now':>16}{'difference':>17}"] if sizes else []
    return "\n".join([*wrapped(shown.sentence), "", text([replace(shown, sentence="")]), "", *head, *sizes])


def _size_changes(name: str, files: str, old: Sequence[Inspected], new: Sequence[Inspected]) -> Iterator[str]:
    before, now = code_sizes(old), code_sizes(new)
    yield name
    for kind, arch in sorted_code({*before, *now}):
        yield _size_change(f"{_KINDS[kind]} {arch}", before.get((kind, arch), 0), now.get((kind, arch), 0))
    yield _size_change(files, *(sum(library.size for library in side) for side in (old, new)))


def _size_change(what: str, before: int, now: int) -> str:
    return f"  {what:<18}{before:>16,}{now:>16,}{now - before:>+17,}"


def sizes_text(source: InspectedSource) -> str:
    """Return a text with the bytes of code for each architecture by library, and their share of the file."""
    groups = [(printable(item.name), [item]) for item in source.libraries if item.coverage]
    every = [(TOTAL, source.libraries)] if len(groups) > 1 else []
    lines = [line for group in (*groups, *every) for line in _sizes(*group)]
    return "\n".join(
        [f"{printable(source.label)}: bytes of device code, and their share of the file", *lines]
    )


def _sizes(name: str, libraries: Sequence[Inspected]) -> Iterator[str]:
    whole = sum(item.size for item in libraries)
    yield f"{name}  {whole:,} bytes"
    for (kind, arch), size in code_sizes(libraries).items():
        yield f"  {f'{_KINDS[kind]} {arch}':<18}{size:>16,}{size / whole:>8.1%}"
