"""A picture of bars, for benchmarks whose measured processes do not have Jinja."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader


class Bar(NamedTuple):
    """A bar. One without a name belongs to the name above it."""

    name: str
    value: float
    series: int
    """Its place among the two series, which have a colour each."""


def bars_picture(
    title: str, bars: Sequence[Bar], series: tuple[str, str], templates: Path, decimals: int = 0
) -> str:
    """Return an SVG with a bar for each name and value, as long as its share of the largest value."""
    environment = Environment(loader=FileSystemLoader(templates), autoescape=True, trim_blocks=True)
    most = max((bar.value for bar in bars), default=1.0)
    drawn = [
        {**bar._asdict(), "value": f"{bar.value:.{decimals}f}", "share": bar.value / most} for bar in bars
    ]
    return environment.get_template("bars.svg.j2").render(bars=drawn, series=series, title=title)
