"""ONNX Runtime sessions on the best provider that works, with the reason if it is not the GPU."""

import sys
from typing import TYPE_CHECKING

from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.report import Report, Step

if TYPE_CHECKING:
    from ortpacks_runtime.session import Session, open_session

__all__ = ["ProviderError", "Report", "Session", "Step", "open_session"]


def __getattr__(name: str) -> object:
    """Import what needs onnxruntime on first use, so that ``doctor`` can report a missing onnxruntime."""
    if name not in ("Session", "open_session"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import onnxruntime  # noqa: PLC0415

    if not hasattr(onnxruntime, "InferenceSession"):
        raise ImportError(
            f"the onnxruntime of {sys.executable} is broken: its folder has no __init__.py. A wheel of "
            "another name was uninstalled and took the files of both: pip install --force-reinstall the one "
            "that is left (onnxruntime or onnxruntime-gpu)"
        )
    from ortpacks_runtime import session  # noqa: PLC0415

    return getattr(session, name)
