"""Changed copies of JSON texts, for tests of readers."""

import json
from typing import Any


def changed(text: str | bytes, path: str, value: object) -> str:
    """Return a JSON text with another value at a path like ``parts/0/file``, or without it for ``...``."""
    document = json.loads(text)
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    parent: Any = document
    for step in way:
        parent = parent[step]
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return json.dumps(document)
