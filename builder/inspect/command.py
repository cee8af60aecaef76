"""The verb inspect shows which GPUs libraries run on, as a table, JSON, a page and a picture.

The page (HTML) and the picture (SVG) are made by Jinja templates and need no other file. The same maps always
give the same text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import BaseLoader

from builder.binary.comparison import compare
from builder.console import Console, Reporter
from builder.contents.sentences import SPECIALISED
from builder.contents.supported_gpus import InspectedSource
from builder.facts.gpu.table import Gpu, by_generation
from builder.inspect.answers import InspectOptions
from builder.inspect.answers import show as show_answer
from builder.inspect.opener import Opener
from builder.inspect.reading import inspect_sources as read_sources
from builder.inspect.report.changes import changes_map
from builder.inspect.report.heatmap import LEGEND, HeatMap, heat_maps
from builder.io.templates import template_environment
from builder.io.transfer import HttpTransfer
from builder.io.wiring import Wiring


def opener(wiring: Wiring, reporter: Reporter) -> Opener:
    """Return an opener of sources, whose scratch folder is ``dist/inspect``."""
    return Opener(
        transfer=HttpTransfer(reporter=reporter, sleep=time.sleep, env=wiring.env),
        scratch=wiring.dist / "inspect",
    )


def inspect_sources(
    wiring: Wiring, sources: Sequence[str], *, deep: bool = False
) -> tuple[InspectedSource, ...]:
    """Inspect each source, a file, folder or URL, and return what was found; with ``deep`` unpack images too.

    Messages go to standard error, since standard output is the report's. Raises what ``Opener.files`` does.
    """
    messages = Console(env=wiring.env, stream=sys.stderr)
    return read_sources(opener(wiring, messages), sources, deep=deep)


def show(
    wiring: Wiring,
    sources: Sequence[InspectedSource],
    options: InspectOptions,
    html: Path | None,
    picture: Path | None,
) -> None:
    """Show what ``answers.show`` shows, and write a page to ``html`` and a picture to ``picture``."""
    maps = heat_maps(sources)
    if options.diff:
        old, new = sources
        maps = (changes_map(old, new, compare(old.libraries, new.libraries), maps[0].gpus), *maps)
    views = ((html, page), (picture, svg))
    files = {path: view(maps, wiring.loader).encode() for path, view in views if path}
    show_answer(sources, options, files, wiring.console.show, wiring.reporter.say)


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


CELL = 32
"""Width of a cell in pixels."""

_NAMES_END, _STEP, _BETWEEN, _COUNT = 316, 34, 16, 84
"""Pixels: right edge of names, step of cells, gap between generations, width of counts."""


def _groups(gpus: Iterable[Gpu]) -> Iterator[_Group]:
    left = _NAMES_END
    for generation in by_generation(gpus):
        lefts = tuple(left + _STEP * index for index in range(len(generation.gpus)))
        yield _Group(generation.name, lefts, lefts[-1] + CELL)
        left = lefts[-1] + _STEP + _BETWEEN


def _rendered(template: str, maps: Sequence[HeatMap], loader: BaseLoader) -> str:
    gpus = maps[0].gpus
    groups, generations = tuple(_groups(gpus)), by_generation(gpus)
    return (
        template_environment(loader, html=True)
        .get_template(template)
        .render(
            maps=maps,
            overview=[replace(shown_map.overall, name=shown_map.label, summary=False) for shown_map in maps],
            groups=groups,
            generations=generations,
            first={generation.gpus[0].capability for generation in generations},
            lefts=[left for group in groups for left in group.lefts],
            width=groups[-1].right + _COUNT,
            gpus=gpus,
            cell=CELL,
            legend=LEGEND,
            specialised=SPECIALISED,
        )
    )
