"""Tests of the samples from which a file's compressed size is estimated, and of the estimate."""

from __future__ import annotations

import pytest

from builder.adapters.archive.compression import extrapolated, sampled
from builder.formats.package_names import Form
from builder.project.variants import Preset

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "spans"),
    [
        (0, []),
        (1, [range(1)]),
        (MIB // 4, [range(MIB // 4)]),
        (4 * MIB, [range(15 * MIB // 8, 17 * MIB // 8)]),
        (4 * MIB + 3, [range(15 * MIB // 8, 17 * MIB // 8), range(4 * MIB, 4 * MIB + 3)]),
    ],
)
def test_a_quarter_of_a_mebibyte_is_looked_at_in_the_middle_of_every_four(
    size: int, spans: list[range]
) -> None:
    assert list(sampled(size)) == spans


@pytest.mark.parametrize("size", [1, 5_000_001, 749_205_904])
def test_spans_lie_inside_the_file_one_behind_the_other(size: int) -> None:
    end = 0
    for span in sampled(size):
        assert span.start >= end
        end = span.stop
    assert end <= size


def test_samples_stand_for_the_rest() -> None:
    assert extrapolated(4 * MIB, 1000, Form.GZ, Preset.FAST) == 16_000
    assert extrapolated(4 * MIB, 1150, Form.ZST, Preset.SMALL) == 16_000
    assert extrapolated(0, 20, Form.ZST, Preset.FAST) == 20


def test_what_was_looked_at_as_a_whole_is_not_guessed() -> None:
    assert extrapolated(1000, 700, Form.ZST, Preset.SMALL) == 700
