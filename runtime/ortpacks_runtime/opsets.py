"""This module says before a model is loaded that its opset is newer than this ONNX Runtime."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import onnxruntime

from ortpacks_runtime.client import ClientError, opsets
from ortpacks_runtime.one_node import ONE_NODE

_TOO_NEW = ONE_NODE[:-1] + b"\x7f"
"""The model, asking for opset 127."""

_KNOWN = re.compile(r"official support for domain ai\.onnx is till opset (\d+)")

_SILENT = 4


def too_new(model: Path) -> str:
    """Return that ``model`` asks for a newer opset than ONNX Runtime knows; empty if it does not.

    Empty too if the client or ONNX Runtime does not tell.
    """
    try:
        asked = opsets(model).get("ai.onnx", 0)
    except ClientError:
        return ""
    known = _newest()
    if known is None or asked <= known:
        return ""
    return (
        f"{model.name} asks for opset {asked} of ai.onnx, onnxruntime {onnxruntime.__version__} knows "
        f"{known} and older. Export it with opset_version={known}, or use a newer onnxruntime."
    )


@cache
def _newest() -> int | None:
    """Return the newest opset that ONNX Runtime knows, from its refusal of a newer one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    try:
        onnxruntime.InferenceSession(_TOO_NEW, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no class
        found = _KNOWN.search(str(error))
        return int(found[1]) if found else None
    return None
