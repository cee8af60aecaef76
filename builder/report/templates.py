"""The environment of every template: build files, Markdown, HTML and SVG."""

from __future__ import annotations

from functools import cache

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.binary.coverage import Support
from builder.report.heatmap import MARKS, MEANINGS
from builder.report.sentences import SPECIALISED


@cache
def template_environment(loader: BaseLoader, *, html: bool = False) -> Environment:
    """Return an environment in which an unknown name is an error.

    With ``html`` it escapes values for HTML and SVG.
    Its templates know the ``legend`` of marks and the text ``specialised``.
    """
    found = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
        autoescape=html,  # noqa: S701 - Dockerfiles and Markdown are not HTML
    )
    found.globals |= {
        "legend": [(support.value, MARKS[support], MEANINGS[support]) for support in Support],
        "specialised": SPECIALISED,
    }
    return found
