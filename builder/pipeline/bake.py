"""The verb bake writes a folder from which ``docker buildx bake`` compiles variants without this project.

The folder has a target for each variant, the stage that ``compile`` exports. All paths are relative to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from builder.pipeline.compile import link_tree
from builder.ports import Store
from builder.project.build_plan import Rendered, Workplace
from builder.project.inputs import Input

BAKE_FILE = "docker-bake.json"

_WHEELS = "wheels"

_STEP = re.compile(r"^RUN ", re.MULTILINE)
"""The beginning of a step in a Dockerfile; no script in our Dockerfiles has such a line."""


def is_bakes(folder: Path) -> bool:
    """Return whether a folder has what ``bake`` writes alone: a project may have a file of that name too."""
    try:
        targets = json.loads((folder / BAKE_FILE).read_bytes())["target"]
        ours = [name for name, target in targets.items() if target["output"] == _output(name)]
        names = {BAKE_FILE, _WHEELS, *ours}
        return len(ours) == len(targets) > 0 and names.issuperset(entry.name for entry in folder.iterdir())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def write_bake(folder: Path, rendered: Mapping[str, Rendered], store: Store) -> None:
    """Write ``docker-bake.json`` and the named contexts into ``folder``.

    ``folder`` must already have a folder for each variant with its Dockerfiles and context. Raises
    ``DiskError``.
    """
    wheels = {wheel for one in rendered.values() for wheel in one.contexts.values()}
    for wheel in wheels:
        link_tree(store.unpack(wheel), folder / _WHEELS / wheel.spec)
    for name, one in rendered.items():
        if not one.network:
            _take_network(Workplace(folder / name).dockerfile)
    document = {
        "group": {"default": {"targets": [*rendered]}},
        "target": {name: _target(name, one.contexts) for name, one in rendered.items()},
    }
    (folder / BAKE_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _take_network(dockerfile: Path) -> None:
    """Let every step run without a network: buildx 0.13 reads no ``network`` from a bake file."""
    text = dockerfile.read_text(encoding="utf-8")
    dockerfile.write_text(_STEP.sub("RUN --network=none ", text), encoding="utf-8")


def _target(name: str, contexts: Mapping[str, Input]) -> dict[str, object]:
    place = Workplace(Path(name))
    return {
        "context": str(place.context),
        "dockerfile": f"../{place.dockerfile.name}",  # relative to its context
        "contexts": {context: f"{_WHEELS}/{wheel.spec}" for context, wheel in contexts.items()},
        "target": "artifact",
        "attest": ["type=provenance,disabled=true"],
        "output": _output(name),
    }


def _output(name: str) -> list[str]:
    return [f"type=local,dest={Workplace(Path(name)).artifact}"]
