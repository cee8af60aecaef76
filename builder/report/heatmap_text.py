"""Renderer of heat maps as tables of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.binary.coverage import Support
from builder.gpu.table import Generation, by_generation
from builder.report.heatmap import DOUBT, MARKS, MEANINGS, HeatMap, HeatMapRow

LEGEND = "   ".join([*(f"{MARKS[support]} {MEANINGS[support]}" for support in Support), f"{DOUBT} doubtful"])

_LONGEST = 44
"""Most characters of a name in the line of its row; a longer name gets a line of its own above the row."""

_CELL_OF_TEXT = 3

_GAP = "  "

_LINE = 110

_LIBRARY = "library"

_STAR = "*"


def text(maps: Sequence[HeatMap]) -> str:
    """Return all maps as tables of text, separated by blank lines, with the legend of marks at the end."""
    return "\n\n".join([*("\n".join(_map_lines(found)) for found in maps), LEGEND])


def _map_lines(found: HeatMap) -> Iterator[str]:
    names = [_row_name(row) for row in found.all_rows]
    width = max([*(len(name) for name in names if len(name) <= _LONGEST), len(_LIBRARY)])
    marks = (len(cell.mark) for row in found.all_rows for cell in row.cells)
    columns = _Columns(by_generation(found.gpus), max([_CELL_OF_TEXT, *marks]))
    yield f"{found.label}, in {found.folder}" if found.folder else found.label
    yield from _head_lines(columns, width)
    for row in found.all_rows:
        yield from _row_lines(row, columns, width)
    yield ""
    yield from wrapped(found.sentence)
    for note in found.texts:
        yield from wrapped(note)


@dataclass(frozen=True)
class _Columns:
    """The columns of a text table, grouped by generation."""

    generations: Sequence[Generation]
    least: int
    """Least width of a column in characters."""

    def names(self) -> Iterator[str]:
        """Return the generations' names, each centred over its columns."""
        return (f"{generation.name:^{self._width(generation)}}" for generation in self.generations)

    def filled(self, entries: Iterable[str]) -> Iterator[str]:
        """Yield the entries of each generation as one text, centred below the generation's name."""
        left = iter(entries)
        for generation in self.generations:
            group = " ".join(f"{next(left):^{width}}" for width in self._widths(generation))
            yield f"{group:^{self._width(generation)}}"

    def _widths(self, generation: Generation) -> list[int]:
        return [max(len(str(gpu.capability)), self.least) for gpu in generation.gpus]

    def _width(self, generation: Generation) -> int:
        widths = self._widths(generation)
        return max(len(generation.name), sum(widths) + len(widths) - 1)


def _head_lines(columns: _Columns, width: int) -> Iterator[str]:
    yield _GAP.join([" " * width, *columns.names()]).rstrip()
    devices = (str(gpu.capability) for generation in columns.generations for gpu in generation.gpus)
    yield _GAP.join([f"{_LIBRARY:<{width}}", *columns.filled(devices), "containers"])


def _row_lines(row: HeatMapRow, columns: _Columns, width: int) -> Iterator[str]:
    """Yield the lines of a row; a name that is wider than ``width`` gets a line of its own before."""
    name = _row_name(row)
    if len(name) > width:
        yield name
        name = ""
    if not row.cells:
        yield _GAP.join([f"{name:<{width}}", row.remark])
        return
    marks = columns.filled(cell.mark for cell in row.cells)
    yield _GAP.join([f"{name:<{width}}", *marks, f"{row.count:>10}"]).rstrip()


def _row_name(row: HeatMapRow) -> str:
    return f"{row.name} {_STAR}" if row.specialised else row.name


def wrapped(sentence: str) -> Sequence[str]:
    """Return a sentence wrapped to lines of ``_LINE`` characters."""
    return textwrap.wrap(sentence, _LINE, subsequent_indent="  ", break_on_hyphens=False)
