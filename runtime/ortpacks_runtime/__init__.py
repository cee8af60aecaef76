"""ONNX Runtime sessions on the provider that works here, with the reason where it is not the GPU."""

from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.report import Report, Step
from ortpacks_runtime.session import Session, open_session

__all__ = ["ProviderError", "Report", "Session", "Step", "open_session"]
