"""The verb inspect shows which GPUs libraries run on, as a table, JSON, a page and a picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from builder.adapters.transfer import HttpTransfer
from builder.adapters.untrusted.opener import Opener
from builder.binary.comparison import compare
from builder.builds.wiring import Wiring
from builder.console import Console
from builder.inspector.answers import InspectOptions
from builder.inspector.answers import show as show_answer
from builder.inspector.sources import inspect_sources as read_sources
from builder.package.promise import InspectedSource
from builder.ports import Reporter
from builder.report.changes import changes_map
from builder.report.heatmap import heat_maps
from builder.report.pictures import page, svg


def opener(wiring: Wiring, reporter: Reporter) -> Opener:
    """Return an opener of sources, whose scratch folder is ``dist/inspect``."""
    return Opener(
        transfer=HttpTransfer(reporter=reporter, sleep=time.sleep, env=wiring.env),
        reporter=reporter,
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
