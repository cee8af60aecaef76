"""The first run of a session shows whether the provider computes, and which provider runs each node."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.str_,
}

Feed = Mapping[str, Any]


class WarmUpError(RuntimeError):
    """No input can be made up for a model."""


def made_up(session: onnxruntime.InferenceSession) -> dict[str, Any]:
    """Return ones for every input, with size 1 for each dimension that is not fixed.

    Raises ``WarmUpError``.
    """
    feed: dict[str, Any] = {}
    for wanted in session.get_inputs():
        if wanted.type not in _TYPES:
            raise WarmUpError(f"input {wanted.name} is a {wanted.type}: pass feed= to open_session")
        shape = [size if isinstance(size, int) and size >= 0 else 1 for size in wanted.shape]
        feed[wanted.name] = np.ones(shape, dtype=_TYPES[wanted.type])
    return feed


class Recording:
    """A folder for a session's records of its runs. It is removed by ``close``, or with this object."""

    def __init__(self) -> None:
        """Raises ``OSError`` if no folder can be made."""
        self.folder = tempfile.mkdtemp(prefix="ortpacks-warm-up-")
        self.close = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def record(options: onnxruntime.SessionOptions, folder: str) -> None:
    """Make a session that is opened with ``options`` record its runs in ``folder``, until ``nodes_of``."""
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "warm-up")


def nodes_of(session: onnxruntime.InferenceSession) -> dict[str, int] | None:
    """Return the number of nodes that ran since the session was opened, by ONNX Runtime's provider.

    The recording ends. ``None`` if it cannot be read, as on a full disk.
    """
    try:
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ran = {
        (event["args"].get("node_index"), event["name"]): event["args"]["provider"]
        for event in events
        if event.get("cat") == "Node" and event.get("args", {}).get("provider")
    }
    return dict(Counter(ran.values()))
