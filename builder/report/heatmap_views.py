"""Heat maps for readers: as text, as an SVG picture, and as an HTML page that holds the same pictures.

All three draw the rows of ``report.heatmap``. Picture and page are Jinja templates that need no other file;
the same maps give the same bytes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.binary.coverage import Support
from builder.gpu.table import GENERATIONS, MODELS
from builder.report.heatmap import MARKS, MEANINGS, HeatMap, HeatMapRow
from builder.report.sentences import SPECIALISED

LEGEND = "   ".join(f"{MARKS[support]} {MEANINGS[support]}" for support in Support)

_LONGEST = 44
"""Characters of a name beside its row of text; a longer one has a line to itself, above its row."""

_GAP = "  "

_WIDTHS = tuple(
    tuple(max(len(str(model.device)), 3) for model in generation.models) for generation in GENERATIONS
)

_GROUPS = tuple(
    max(len(generation.name), sum(widths) + len(widths) - 1)
    for generation, widths in zip(GENERATIONS, _WIDTHS, strict=True)
)

_LINE = 110

_LIBRARY = "library"

_STAR = "*"


def text(maps: Sequence[HeatMap]) -> str:
    """All maps as tables of text, a blank line between two; what the marks mean stands at the end."""
    return "\n\n".join([*("\n".join(_lines(found)) for found in maps), LEGEND])


def _lines(found: HeatMap) -> Iterator[str]:
    names = [_named(row) for row in found.all_rows]
    width = max([*(len(name) for name in names if len(name) <= _LONGEST), len(_LIBRARY)])
    yield f"{found.label}, in {found.folder}" if found.folder else found.label
    yield from _head(width)
    for row in found.all_rows:
        yield from _row(row, width)
    yield ""
    yield from _wrapped(found.sentence)
    for note in found.notes:
        yield from _wrapped(f"{note.name}: {note.text}.")
    if found.starred:
        yield from _wrapped(f"{_STAR} {SPECIALISED}.")


def _head(width: int) -> Iterator[str]:
    names = (f"{generation.name:^{group}}" for generation, group in zip(GENERATIONS, _GROUPS, strict=True))
    numbers = _columns([str(model.device) for generation in GENERATIONS for model in generation.models])
    yield _GAP.join([" " * width, *names]).rstrip()
    yield _GAP.join([f"{_LIBRARY:<{width}}", numbers, "containers"])


def _row(row: HeatMapRow, width: int) -> Iterator[str]:
    """A long name's line, then the row's: the columns stand under each other whatever it is called."""
    name = _named(row)
    if len(name) > width:
        yield name
        name = ""
    if not row.cells:
        yield _GAP.join([f"{name:<{width}}", row.remark])
        return
    marks = _columns([cell.mark for cell in row.cells])
    yield _GAP.join([f"{name:<{width}}", marks, f"{row.count:>10}"]).rstrip()


def _columns(entries: Iterable[str]) -> str:
    left = iter(entries)
    groups = (" ".join(f"{next(left):^{width}}" for width in widths) for widths in _WIDTHS)
    return _GAP.join(f"{group:^{width}}" for group, width in zip(groups, _GROUPS, strict=True))


def _named(row: HeatMapRow) -> str:
    return f"{row.name} {_STAR}" if row.specialised else row.name


def _wrapped(sentence: str) -> Sequence[str]:
    return textwrap.wrap(sentence, _LINE, subsequent_indent="  ", break_on_hyphens=False)


def svg(maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    """All maps, one below the other, as one SVG picture for light and dark backgrounds."""
    return _rendered("inspect.svg.j2", maps, loader)


def page(maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    """All maps as one HTML page, with the counts behind each library."""
    return _rendered("inspect.html.j2", maps, loader)


@dataclass(frozen=True)
class _Group:
    """A generation's columns in a picture: left edge of each, and of all of them the two outer edges."""

    name: str
    lefts: tuple[int, ...]
    right: int


_NAMES_END, _CELL, _STEP, _BETWEEN, _COUNT = 316, 32, 34, 16, 84
"""Pixels: where names end, width of a cell, from cell to cell, between generations, room for counts."""


def _groups() -> Iterator[_Group]:
    left = _NAMES_END
    for generation in GENERATIONS:
        lefts = tuple(left + _STEP * index for index in range(len(generation.models)))
        yield _Group(generation.name, lefts, lefts[-1] + _CELL)
        left = lefts[-1] + _STEP + _BETWEEN


def _rendered(template: str, maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters |= {"elided": _elided, "lines": _sentence_lines}
    groups = tuple(_groups())
    environment.globals |= {
        "groups": groups,
        "lefts": [left for group in groups for left in group.lefts],
        "width": groups[-1].right + _COUNT,
        "models": MODELS,
        "cell": _CELL,
    }
    return environment.get_template(template).render(
        maps=maps,
        overview=[
            replace(
                found.total or HeatMapRow(found.label, remark=found.sentence), name=found.label, summary=False
            )
            for found in maps
        ],
        legend=[(support.value, MARKS[support], MEANINGS[support]) for support in Support],
        specialised=SPECIALISED,
    )


def _elided(name: str, most: int) -> str:
    """The text, or its beginning and end with an ellipsis between, ``most`` characters in all."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _sentence_lines(sentence: str) -> list[str]:
    """A sentence in lines that fit a picture's width in any common sans-serif font of 14 pixels."""
    return textwrap.wrap(sentence, 140, break_on_hyphens=False)
