"""Tests that run ``tests.fuzz`` briefly over generated files; ``python -m tests.fuzz`` is the long run."""

import pytest

from tests.fuzz import campaign
from tests.fuzz.parsers import PARSERS
from tests.fuzz.seeds import synthetic

SEED = 3


@pytest.mark.parametrize("executions", [4_000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_mutated_headers_are_read_or_refused(executions: int) -> None:
    result = campaign.run(synthetic(), executions, SEED)
    reasons = [crash.reason for crash in result.crashes[:3]]
    assert not reasons, f"seed {SEED}: {result}"
    assert result.outcomes > 200, f"seed {SEED}: {result}"


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
