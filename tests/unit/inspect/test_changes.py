"""Tests of the sentence on what changed between two sources."""

import pytest

from builder.binary.comparison import compare
from builder.binary.library import Inspected
from builder.inspect.report.changes import sentence
from tests.support.factories.libraries import coverage
from tests.support.messages import Told


def library(isa: tuple[int, int] | None, *, zstd: bool = False) -> list[Inspected]:
    return [Inspected("lib/libx.so", coverage(native="8.0", jit="9.0", isa=isa, zstd=zstd))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (library((8, 3)), library((8, 7))),
        (library((8, 2)), library((8, 7))),
        (library((8, 7)), library((8, 7), zstd=True)),
        (library((8, 7)), library((8, 7))),
    ],
    ids=["JIT of 12.3, then 12.8", "JIT of 12.2, then 12.8", "zstd", "nothing"],
)
def test_a_change_of_a_driver_s_floor_is_a_change(
    told: Told, old: list[Inspected], new: list[Inspected]
) -> None:
    """ctranslate2 4.4.0 needed driver 535.54.03 for JIT, 4.8.5 needs 570.26."""
    told(sentence(compare(old, new)))
