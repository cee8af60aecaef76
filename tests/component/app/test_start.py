"""What the verbs import before one of them runs."""

from __future__ import annotations

import subprocess
import sys

from tests.support import ROOT

SLOW = {"numpy", "onnx", "onnxruntime"}
"""Slow to import; onnxruntime also leaves an id of its own in the user's home."""


def test_the_verbs_start_without_the_slow_libraries() -> None:
    script = f"import sys, tasks\nprint(sorted({SLOW!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
