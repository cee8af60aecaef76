"""How large an archive would be, from a part of each file: where to look, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

from builder.core.variant import Form, Preset

SAMPLE = 1 << 18
STRETCH = 1 << 22
"""Of every 4 MiB of a file 256 KiB are looked at."""
_FARTHER = {(Form.ZST, Preset.FAST): 1.05, (Form.ZST, Preset.SMALL): 1.15}
"""How much more samples take than the whole, which repeats what lies farther back than a sample begins.

Measured on four sets of CUDA libraries of 0.29 GB: 1.02 to 1.07 and 1.12 to 1.18. gzip looks back 32 KiB.
"""


@dataclass(frozen=True)
class Span:
    """Bytes of a file: ``length`` of them from ``offset``."""

    offset: int
    length: int


def sampled(size: int) -> Iterator[Span]:
    """The spans of a file of ``size`` bytes that stand for all of it: the middle of each stretch."""
    for start in range(0, size, STRETCH):
        stretch = min(STRETCH, size - start)
        length = min(SAMPLE, stretch)
        yield Span(start + (stretch - length) // 2, length)


def extrapolated(size: int, compressed: int, form: Form, preset: Preset) -> int:
    """Bytes that a file of ``size`` compresses to, when its samples gave ``compressed``.

    On a full package (2.94 GB) it was 2 and 3 % above the archives of the two presets.
    """
    looked_at = sum(span.length for span in sampled(size))
    if looked_at == size:
        return compressed
    return round(size * compressed / looked_at / _FARTHER.get((form, preset), 1))
