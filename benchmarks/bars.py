"""A picture of bars, for benchmarks whose measured processes do not have Jinja."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader


def bars_picture(title: str, bars: Sequence[tuple[str, float]], templates: Path, decimals: int = 0) -> str:
    """Return an SVG with a bar for each name and value, as long as its share of the largest value."""
    environment = Environment(loader=FileSystemLoader(templates), autoescape=True, trim_blocks=True)
    most = max((value for _, value in bars), default=1.0)
    drawn = [{"name": name, "value": f"{value:.{decimals}f}", "share": value / most} for name, value in bars]
    return environment.get_template("bars.svg.j2").render(bars=drawn, title=title)
