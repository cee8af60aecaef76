"""Which model a machine can hold."""

from __future__ import annotations

from typing import Iterable, Optional

from builder.core.variant import ModelRule

_UNIFIED = ("macos-arm64",)
_SHARE_PERCENT = 35
"""Of unified memory for a model: the system and the application live in it too."""


def usable_vram(platform: str, ram_mib: int, vram_mib: Optional[int]) -> Optional[int]:
    """MiB of GPU memory that a model may take: the GPU's own, or a share of memory that the CPU uses too.

    ``vram_mib``: of the chosen GPU, ``None`` without one or where it is unknown.
    """
    return ram_mib * _SHARE_PERCENT // 100 if platform in _UNIFIED else vram_mib


def recommend(
    models: Iterable[ModelRule], vram_mib: Optional[int], cores: int, ram_gib: int
) -> Optional[ModelRule]:
    """The first line whose floors are met; ``vram_mib`` is ``None`` without a GPU or where it is unknown."""
    for rule in models:
        memory_fits = rule.device != "gpu" or (vram_mib is not None and vram_mib >= rule.vram_mib)
        if memory_fits and cores >= rule.cores and ram_gib >= rule.ram_gib:
            return rule
    return None
