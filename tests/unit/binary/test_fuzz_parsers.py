"""Tests that each parser of ``tests.fuzz.parsers`` reads its seeds, and reads or refuses cut seeds."""

from __future__ import annotations

import pytest

from tests.fuzz.parsers import PARSERS


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_are_read(name: str) -> None:
    parser = PARSERS[name]
    seeds = parser.corpus()
    assert seeds
    assert name == "archives" or any(parser.read(seed) for seed in seeds)


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_cut_short_is_refused_or_read(name: str) -> None:
    for seed in PARSERS[name].corpus():
        for size in range(0, len(seed), max(1, len(seed) // 50)):
            PARSERS[name].read(seed[:size])
