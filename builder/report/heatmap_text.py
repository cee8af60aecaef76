"""A heat map as text: a row a library, a column a compute capability, generations above."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from builder.binary.coverage import Support
from builder.gpu.table import GENERATIONS
from builder.report.heatmap import MARKS, MEANINGS, HeatMap, Row
from builder.report.sentences import SPECIALISED

LEGEND = "   ".join(f"{MARKS[support]} {MEANINGS[support]}" for support in Support)

_LONGEST = 44
"""A longer name has a line to itself, above its row."""

_GAP = "  "

_WIDTHS = tuple(
    tuple(max(len(str(model.device)), 3) for model in generation.models) for generation in GENERATIONS
)

_GROUPS = tuple(
    max(len(generation.name), sum(widths) + len(widths) - 1)
    for generation, widths in zip(GENERATIONS, _WIDTHS, strict=False)
)

_LINE = 110

_LIBRARY = "library"

_STAR = "*"


def text(maps: Sequence[HeatMap]) -> str:
    """All of them, a blank line between two; what the marks mean stands at the end."""
    return "\n\n".join([*("\n".join(_lines(found)) for found in maps), LEGEND])


def _lines(found: HeatMap) -> Iterator[str]:
    rows = [*found.rows, *([found.total] if found.total else [])]
    width = max((len(_named(row)) for row in rows if len(_named(row)) <= _LONGEST), default=_LONGEST)
    yield f"{found.label}, in {found.folder}" if found.folder else found.label
    yield from _head(max(width, len(_LIBRARY)))
    for row in rows:
        yield from _row(row, max(width, len(_LIBRARY)))
    yield ""
    yield from _wrapped(found.sentence)
    for note in found.notes:
        yield from _wrapped(f"{note.name}: {note.text}.")
    if any(row.specialised for row in found.rows):
        yield from _wrapped(f"{_STAR} {SPECIALISED}.")


def _head(width: int) -> Iterator[str]:
    names = (f"{generation.name:^{group}}" for generation, group in zip(GENERATIONS, _GROUPS, strict=False))
    numbers = _columns([str(model.device) for generation in GENERATIONS for model in generation.models])
    yield _GAP.join([" " * width, *names]).rstrip()
    yield _GAP.join([f"{_LIBRARY:<{width}}", numbers, "containers"])


def _row(row: Row, width: int) -> Iterator[str]:
    """A long name's line, then the row's: the columns stand under each other whatever it is called."""
    name = _named(row)
    if len(name) > width:
        yield name
        name = ""
    if not row.cells:
        yield _GAP.join([f"{name:<{width}}", row.remark])
        return
    yield _GAP.join(
        [f"{name:<{width}}", _columns([cell.mark for cell in row.cells]), f"{row.containers:>10,}"]
    )


def _columns(entries: Iterable[str]) -> str:
    left = iter(entries)
    groups = (" ".join(f"{next(left):^{width}}" for width in widths) for widths in _WIDTHS)
    return _GAP.join(f"{group:^{width}}" for group, width in zip(groups, _GROUPS, strict=False))


def _named(row: Row) -> str:
    return f"{row.name} {_STAR}" if row.specialised else row.name


def _wrapped(sentence: str) -> Sequence[str]:
    return textwrap.wrap(sentence, _LINE, subsequent_indent="  ", break_on_hyphens=False)
