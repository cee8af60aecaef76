"""Renderers of heat maps as an SVG picture and an HTML page, by Jinja templates.

The results need no other file. The same maps always give the same text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jinja2 import BaseLoader

from builder.gpu.table import Gpu, by_generation
from builder.report.heatmap import HeatMap
from builder.report.templates import template_environment


def svg(maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    """Return all maps, one below the other, as one SVG picture for light and dark backgrounds."""
    return _rendered("inspect.svg.j2", maps, loader)


def page(maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    """Return all maps as one HTML page, with the details of each library."""
    return _rendered("inspect.html.j2", maps, loader)


@dataclass(frozen=True)
class _Group:
    """A generation's columns in a picture: the left edge of each and the last right edge, in pixels."""

    name: str
    lefts: tuple[int, ...]
    right: int


_NAMES_END, _CELL, _STEP, _BETWEEN, _COUNT = 316, 32, 34, 16, 84
"""Pixels: right edge of names, width of a cell, step of cells, gap between generations, width of counts."""


def _groups(gpus: Iterable[Gpu]) -> Iterator[_Group]:
    left = _NAMES_END
    for generation in by_generation(gpus):
        lefts = tuple(left + _STEP * index for index in range(len(generation.gpus)))
        yield _Group(generation.name, lefts, lefts[-1] + _CELL)
        left = lefts[-1] + _STEP + _BETWEEN


def _rendered(template: str, maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    templates = template_environment(loader, html=True)
    templates.filters |= {"elided": _elided, "lines": _sentence_lines}
    gpus = maps[0].gpus
    groups = tuple(_groups(gpus))
    templates.globals |= {
        "groups": groups,
        "lefts": [left for group in groups for left in group.lefts],
        "width": groups[-1].right + _COUNT,
        "gpus": gpus,
        "cell": _CELL,
    }
    overview = [replace(found.overall, name=found.label, summary=False) for found in maps]
    return templates.get_template(template).render(maps=maps, overview=overview)


def _elided(name: str, most: int) -> str:
    """Return ``name``, or its beginning and end around an ellipsis, with at most ``most`` characters."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _sentence_lines(sentence: str) -> list[str]:
    """Return a sentence in lines that fit a picture's width in common sans-serif fonts of 14 pixels."""
    return textwrap.wrap(sentence, 140, break_on_hyphens=False)
