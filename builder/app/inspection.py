"""inspect: look into anything that may hold libraries, change nothing.

What ``inspect`` found, shown: a table or JSON on the console, a page and a picture as files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.adapters.png import draw
from builder.adapters.transfer import HttpTransfer
from builder.adapters.untrusted.opener import Opener, is_url, require_path, shown
from builder.binary.library import Inspected, Report
from builder.builds.workshop import Workshop
from builder.console import Console
from builder.errors import CheckFailedError, ValidationError
from builder.files.atomic_write import part_file
from builder.files.disk import disk_errors
from builder.pipeline.inspect import document, inspect, page, table
from builder.report.heatmap import heat_maps


def look_inside(shop: Workshop, sources: Sequence[str]) -> tuple[Report, ...]:
    """What the libraries of each source hold; each is a file, a folder or a URL. See ``Opener.libraries``."""
    for source in sources:
        if not is_url(source):
            require_path(source)  # before minutes go into the others
    unpacker = opener(shop, stderr_console(shop))
    return tuple((shown(source), _read(unpacker, source)) for source in sources)


def require_read(reports: Sequence[Report]) -> None:
    """Raise ``CheckFailedError`` when a library could not be read: no script may take that for a pass."""
    items = [item for _, found in reports for item in found]
    unread = [f"{item.name}: {item.problem}" for item in items if item.problem]
    if unread:
        raise CheckFailedError(f"{len(unread)} of {len(items)} libraries cannot be read", unread)


def _read(unpacker: Opener, source: str) -> tuple[Inspected, ...]:
    with unpacker.libraries(source) as libraries:
        return inspect(libraries)


def stderr_console(shop: Workshop) -> Console:
    """Where what is said while it works goes: stdout is the report's."""
    return Console(env=shop.env, stream=sys.stderr)


def opener(shop: Workshop, told: Console) -> Opener:
    """Opens sources beside ``dist/inspect``."""
    return Opener(
        transfer=HttpTransfer(reporter=told, sleep=time.sleep),
        reporter=told,
        scratch=shop.dist / "inspect",
    )


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
