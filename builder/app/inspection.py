"""inspect: reads anything that may hold libraries; shows it as a table, JSON, a page and a picture."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.adapters.transfer import HttpTransfer
from builder.adapters.untrusted.opener import Opener, is_url, require_path, shown
from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import CheckFailedError, ValidationError
from builder.files.atomic_write import part_file
from builder.files.disk import disk_errors
from builder.package.describe import InspectedSource
from builder.pipeline.inspect import document, inspect_source
from builder.report.heatmap import heat_maps, page, svg, text


def look_inside(wiring: Wiring, sources: Sequence[str]) -> tuple[InspectedSource, ...]:
    """Inspect each source, a file, folder or URL. Raises as ``Opener.files``."""
    for source in sources:
        if not is_url(source):
            require_path(source)  # before minutes go into the others
    unpacker = opener(wiring, stderr_console(wiring))
    return tuple(_read(unpacker, source) for source in sources)


def require_sound(sources: Sequence[InspectedSource]) -> None:
    """Raise ``CheckFailedError`` when a library cannot be read or is not what its manifest says."""
    items = [item for source in sources for item in source.libraries]
    unread = [f"{item.name}: {item.problem}" for item in items if item.problem]
    broken = [str(one) for source in sources for promise in source.promises for one in promise.findings]
    what = [f"{len(unread)} of {len(items)} libraries cannot be read"] if unread else []
    what += ["a manifest promises something else than its package holds"] if broken else []
    if what:
        raise CheckFailedError("; ".join(what), [*unread, *broken])


def _read(unpacker: Opener, source: str) -> InspectedSource:
    with unpacker.files(source) as files:
        return inspect_source(shown(source), files.libraries, files.manifests)


def stderr_console(wiring: Wiring) -> Console:
    """Where what is said while it works goes: stdout is the report's."""
    return Console(env=wiring.env, stream=sys.stderr)


def opener(wiring: Wiring, told: Console) -> Opener:
    """Opens sources beside ``dist/inspect``."""
    return Opener(
        transfer=HttpTransfer(reporter=told, sleep=time.sleep, env=wiring.env),
        reporter=told,
        scratch=wiring.dist / "inspect",
    )


def show(
    wiring: Wiring,
    sources: Sequence[InspectedSource],
    *,
    as_json: bool,
    html: Path | None,
    picture: Path | None,
) -> None:
    """Write the files that are asked for, then print. With ``as_json`` nothing but JSON is printed.

    Raises ``ValidationError`` where a file cannot be meant and ``DiskError`` where it cannot be written.
    """
    require_places(html, picture)
    maps = heat_maps(sources)
    if html:
        _write(html, page(maps, wiring.loader).encode())
    if picture:
        _write(picture, svg(maps, wiring.loader).encode())
    wiring.console.show(json.dumps(document(sources), indent=2) if as_json else text(maps))
    for path in _asked(html, picture) if not as_json else ():
        wiring.reporter.say(f"{path}  {path.stat().st_size:,} bytes")


def require_places(html: Path | None, picture: Path | None) -> None:
    """Raise ``ValidationError`` for what no file can be written to: cheap, so before anything is read."""
    for path in _asked(html, picture):
        with disk_errors(path):
            _require_place(path)
    if html and picture and html.absolute() == picture.absolute():
        raise ValidationError(f"--html and --svg both name {html}. Give each a file of its own.")


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
