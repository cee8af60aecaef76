"""ONNX Runtime in Python environments: what their records say is installed. Nothing is imported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable, Iterator

from builder.core.seen import Distribution

_RECORD = re.compile(r"(onnxruntime(?:_[a-z0-9_]+)?)-(\d[^-]*)\.dist-info")
_PLACES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")
_PLUGINS = ("onnxruntime_extensions", "onnxruntime_genai", "onnxruntime_tools")
"""These have folders of their own."""


def distributions(environments: Iterable[Path]) -> Iterator[Distribution]:
    """Each distribution that brings the folder ``onnxruntime``. Environments, or their ``site-packages``."""
    inner = (path for folder in environments for path in (folder, *_inside(folder)))
    for place in dict.fromkeys(inner):
        for record in sorted(place.glob("onnxruntime*.dist-info")):
            match = _RECORD.fullmatch(record.name)
            if match and not match[1].startswith(_PLUGINS):
                yield Distribution(match[1].replace("_", "-"), match[2], str(place))


def _inside(environment: Path) -> Iterator[Path]:
    return (path for pattern in _PLACES for path in sorted(environment.glob(pattern)))
