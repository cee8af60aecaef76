"""Renderer of the atlas as one HTML page without other files; its script searches cards and projects."""

from __future__ import annotations

import base64
import hashlib
import json

from jinja2 import BaseLoader

from builder.gpu.table import PRODUCTS, by_generation
from builder.report.atlas import Atlas
from builder.report.templates import template_environment

_SCRIPT = "atlas.js"


def atlas_page(atlas: Atlas, loader: BaseLoader) -> str:
    """Return the HTML text; the same atlas always gives the same text."""
    templates, generations = template_environment(loader, html=True), by_generation(atlas.gpus)
    script = templates.get_template(_SCRIPT).render(gpus=_gpus(atlas))
    return templates.get_template("atlas.html.j2").render(
        atlas=atlas,
        generations=generations,
        first={generation.gpus[0].capability for generation in generations},
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _gpus(atlas: Atlas) -> str:
    """Return the GPUs for the page's search as JSON that is safe inside a script element."""
    known = [
        {
            "device": str(gpu.capability),
            "generation": gpu.generation,
            "pattern": PRODUCTS.get(gpu.capability),
        }
        for gpu in atlas.gpus
    ]
    return json.dumps(known).replace("</", r"<\/")
