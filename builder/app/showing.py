"""What ``inspect`` found, shown: a table or JSON on the console, a page and a picture as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.adapters.partfile import disk_errors, part_file
from builder.adapters.png import draw
from builder.app.workshop import Workshop
from builder.core.heatmap import heat_maps
from builder.core.inspected import Report
from builder.errors import ValidationError
from builder.stages.inspect import document, page, table


def show(
    shop: Workshop, reports: Sequence[Report], *, as_json: bool, html: Path | None, png: Path | None
) -> None:
    """Write the files that are asked for, then print. With ``as_json`` nothing but JSON is printed.

    Raises ``ValidationError`` where a file cannot be meant and ``DiskError`` where it cannot be written.
    """
    require_places(html, png)
    if html:
        _write(html, page(reports, shop.loader).encode())
    if png:
        _write(png, draw(heat_maps(reports)))
    shop.console.show(json.dumps(document(reports), indent=2) if as_json else table(reports))
    for path in _asked(html, png) if not as_json else ():
        shop.reporter.say(f"{path}  {path.stat().st_size:,} bytes")


def require_places(html: Path | None, png: Path | None) -> None:
    """Raise ``ValidationError`` for what no file can be written to: cheap, so before anything is read."""
    for path in _asked(html, png):
        with disk_errors(path):
            _require_place(path)
    if html and png and html.absolute() == png.absolute():
        raise ValidationError(f"--html and --png both name {html}. Give each a file of its own.")


def _require_place(path: Path) -> None:
    if path.is_dir():
        raise ValidationError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise ValidationError(f"{path} is no regular file. Name one that may be replaced.")
    if not path.parent.is_dir():
        raise ValidationError(
            f"{path.parent} is no folder, so {path.name} cannot be written there. Make it first."
        )


def _asked(*paths: Path | None) -> Iterable[Path]:
    return (path for path in paths if path)


def _write(path: Path, data: bytes) -> None:
    with part_file(path, needed=len(data)) as file:
        file.write(data)
