"""Arrays by name, in a file: how inputs get into a process of their own and outputs out of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.answers.values import Array


def save(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write them as numpy's ``.npz``."""
    np.savez(path, allow_pickle=False, **arrays)


def load(path: Path) -> dict[str, Array]:
    """Read them all."""
    return dict(np.load(path))
