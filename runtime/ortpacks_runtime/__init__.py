"""ONNX Runtime sessions on the provider that works here, with the reason where it is not the GPU."""

from typing import TYPE_CHECKING

from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.report import Report, Step

if TYPE_CHECKING:
    from ortpacks_runtime.session import Session, open_session

__all__ = ["ProviderError", "Report", "Session", "Step", "open_session"]


def __getattr__(name: str) -> object:
    """What needs onnxruntime is imported when it is first used: ``doctor`` says where that is missing."""
    if name not in ("Session", "open_session"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ortpacks_runtime import session  # noqa: PLC0415

    return getattr(session, name)
