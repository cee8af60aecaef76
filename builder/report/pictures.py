"""Renderers of heat maps as an SVG picture and an HTML page, by Jinja templates.

The results need no other file. The same maps always give the same text.
"""

from __future__ import annotations

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
    gpus = maps[0].gpus
    groups = tuple(_groups(gpus))
    return (
        template_environment(loader, html=True)
        .get_template(template)
        .render(
            maps=maps,
            overview=[replace(found.overall, name=found.label, summary=False) for found in maps],
            groups=groups,
            lefts=[left for group in groups for left in group.lefts],
            width=groups[-1].right + _COUNT,
            gpus=gpus,
            cell=_CELL,
        )
    )
