"""The atlas as one HTML page that needs no other file: it searches by card, capability and project itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.binary.coverage import Support
from builder.gpu.table import PRODUCTS, by_generation
from builder.report.atlas import Atlas
from builder.report.heatmap import MARKS, MEANINGS
from builder.report.sentences import SPECIALISED

_SCRIPT = "atlas.js"

_CLOSING = re.compile(r"</")


def atlas_page(atlas: Atlas, loader: BaseLoader) -> str:
    """The page. The same atlas gives the same bytes."""
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    script = environment.get_template(_SCRIPT).render(gpus=_gpus(atlas))
    return environment.get_template("atlas.html.j2").render(
        atlas=atlas,
        generations=by_generation(atlas.gpus),
        first={generation.models[0].device for generation in by_generation(atlas.gpus)},
        legend=[(support.value, MARKS[support], MEANINGS[support]) for support in Support],
        specialised=SPECIALISED,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _gpus(atlas: Atlas) -> str:
    """What the page's search knows of GPUs, as JSON that may stand in a script."""
    patterns = dict(PRODUCTS)
    known = [
        {
            "device": str(gpu.device),
            "generation": gpu.generation,
            "pattern": patterns.get(gpu.device),
        }
        for gpu in atlas.gpus
    ]
    return _CLOSING.sub(r"<\\/", json.dumps(known))
