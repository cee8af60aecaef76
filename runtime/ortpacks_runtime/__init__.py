"""ONNX Runtime sessions on the best provider that works, with the reason if it is not the GPU."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.report import Report, Step

if TYPE_CHECKING:
    from ortpacks_runtime.plugins import Registration, register
    from ortpacks_runtime.session import Session, open_session

_HOMES = {"Registration": "plugins", "register": "plugins", "Session": "session", "open_session": "session"}

__all__ = ["ProviderError", "Registration", "Report", "Session", "Step", "open_session", "register"]


def __getattr__(name: str) -> object:
    """Import what needs onnxruntime on first use, so that ``doctor`` can report a missing onnxruntime."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import onnxruntime  # noqa: PLC0415

    if not hasattr(onnxruntime, "InferenceSession"):
        raise ImportError(
            f"the onnxruntime of {sys.executable} is broken: its folder has no __init__.py. A wheel of "
            "another name was uninstalled and took the files of both: pip install --force-reinstall the one "
            "that is left (onnxruntime or onnxruntime-gpu)"
        )
    return getattr(import_module(f"ortpacks_runtime.{_HOMES[name]}"), name)
