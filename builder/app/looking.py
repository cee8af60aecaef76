"""inspect: look into anything that may hold libraries, change nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from builder.adapters.opened import Opener, is_url, require_path, shown
from builder.adapters.transfer import HttpTransfer
from builder.app.workshop import Workshop
from builder.console import Console
from builder.core.inspected import Inspected, Report
from builder.errors import CheckFailedError
from builder.stages.inspect import inspect


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
