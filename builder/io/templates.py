"""The environment of every template: build files, Markdown, HTML and SVG."""

from __future__ import annotations

import textwrap
from functools import cache

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.formats.text import elided, printable


@cache
def template_environment(loader: BaseLoader, *, html: bool = False) -> Environment:
    """Return an environment in which an unknown name is an error. With ``html``, values are escaped.

    Templates know the filters ``elided``, ``lines`` and ``printable``.
    Callers share the environment, so what differs between two renderings is a variable of ``render``.
    """
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
        autoescape=html,  # noqa: S701 - Dockerfiles and Markdown are not HTML
    )
    environment.filters |= {"elided": elided, "lines": _sentence_lines, "printable": printable}
    return environment


def _sentence_lines(sentence: str) -> list[str]:
    """Return a sentence in lines that fit a picture's width in common sans-serif fonts of 14 pixels."""
    return textwrap.wrap(sentence, 134, break_on_hyphens=False)
