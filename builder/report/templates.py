"""The environment of the templates that draw heat maps and the atlas, as SVG and HTML."""

from __future__ import annotations

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.binary.coverage import Support
from builder.report.heatmap import MARKS, MEANINGS
from builder.report.sentences import SPECIALISED


def environment(loader: BaseLoader) -> Environment:
    """Return an environment whose templates know the ``legend`` of marks and the text ``specialised``."""
    found = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    found.globals |= {
        "legend": [(support.value, MARKS[support], MEANINGS[support]) for support in Support],
        "specialised": SPECIALISED,
    }
    return found
