"""Tests that run ``tests.fuzz`` briefly over generated files; ``python -m tests.fuzz`` is the long run."""

from __future__ import annotations

import pytest

from builder.binary.fatbin import read_containers
from builder.binary.library import Reading, read_library
from tests.fuzz import campaign, properties
from tests.fuzz.seeds import synthetic

EXECUTIONS, SEED = 20_000, 3


def test_mutated_headers_are_read_or_refused() -> None:
    result = campaign.run(synthetic(), EXECUTIONS, SEED)
    reasons = [crash.reason for crash in result.crashes[:3]]
    assert not reasons, f"seed {SEED}: {result}"
    assert result.outcomes > 200, f"seed {SEED}: {result}"


def test_a_reader_that_lets_an_exception_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(data: bytes) -> tuple[()]:
        raise IndexError(len(data))

    monkeypatch.setattr(properties, "read_containers", careless)
    result = campaign.run(synthetic(), 3, SEED)
    assert len(result.crashes) == 3
    assert all(crash.reason == f"IndexError({len(crash.data)})" for crash in result.crashes)


def test_a_library_reader_that_lets_an_exception_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(path: str, data: bytes) -> Reading:
        raise IndexError(path, len(data))

    monkeypatch.setattr(properties, "read_library", careless)
    assert len(campaign.run(synthetic(), 3, SEED).crashes) == 3


@pytest.mark.parametrize("name", properties.LIBRARIES)
def test_each_library_s_version_is_in_a_seed(name: str) -> None:
    assert any(read_library(name, seed.data).embedded_version for seed in synthetic())


def test_a_reader_that_takes_too_long_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LONGEST", 0.0)
    assert [crash.reason for crash in campaign.run(synthetic(), 1, SEED).crashes] == ["0.0 s"]


def test_a_reader_that_gives_containers_that_overlap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "read_containers", lambda data: read_containers(data) * 2)
    bare = [seed for seed in synthetic() if not seed.data.startswith(b"\x7fELF")]
    assert campaign.run(bare, 50, SEED).crashes
