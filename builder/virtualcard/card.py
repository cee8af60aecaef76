"""The device and driver that the stand-in claims to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DRIVER = "580.65.06"
"""CUDA 13.0's first: its branch is the last with Maxwell to Volta and the first with every Blackwell.

Source: CUDA Toolkit 13.0 release notes.
"""


@dataclass(frozen=True, kw_only=True)
class VirtualCard:
    """One claimed GPU."""

    capability: str
    """Compute capability, ``8.6``. What ``resolver.c`` does not list, no driver knows: error 100."""
    driver: str = DRIVER
    """Version of NVIDIA's driver, ``535.54.03``."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that runtime.c reads."""
        return {"VIRTUALCARD_CAPABILITY": self.capability, "VIRTUALCARD_DRIVER": self.driver}
