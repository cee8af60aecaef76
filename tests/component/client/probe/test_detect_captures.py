"""Tests of detect with outputs of nvidia-smi from public issues: ``tests/data/nvidia-smi``.

The catalogue has what each of them gives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.client.doctor.observations import Outcome
from builder.client.probe.detect import detect
from tests.doubles.captures import CAPTURES, Quoted, quoted
from tests.doubles.gpus import machine, probes


def kepler() -> Quoted:
    """Return a driver that does not know the query of capabilities."""
    capture = quoted("kepler-440")
    capture.refusals = quoted("compute-cap-470").refusals
    return capture


def divided() -> Quoted:
    """Return a card in MIG mode with the whole card's memory, which no instance has."""
    capture = quoted("mig")
    capture.rows[0]["memory.total"] = "81920"
    return capture


MADE = {"kepler-440 without compute_cap": kepler, "mig with a memory": divided}

OUTCOMES = {
    "mismatch": (Outcome.FAILED, 18),
    "not-loaded-wsl": (Outcome.FAILED, 9),
    "no-devices": (Outcome.NONE, 6),
    "no-supported": (Outcome.NONE, 255),
}
"""Outcome and exit code of those that list no card."""


@pytest.mark.parametrize("name", [*MADE, *sorted(path.stem for path in CAPTURES.glob("*.txt"))])
def test_every_capture_says_where_it_is_from_and_gives_its_cards(
    tmp_path: Path, told: Callable[[object], None], name: str
) -> None:
    assert name in MADE or (CAPTURES / f"{name}.txt").read_text().startswith("source: https://github.com/")
    capture = MADE[name]() if name in MADE else quoted(name)
    found = detect(machine(tmp_path, smi=(capture.program(tmp_path / "bin"),)))
    said = probes(found)["nvidia-smi"]
    assert said.detail
    assert bool(found.devices) == (said.outcome is Outcome.FOUND)
    assert name not in OUTCOMES or (said.outcome, said.code) == OUTCOMES[name]
    cards = [f"{card.uuid or 'no UUID'}, {card}, MIG {card.mig}, {card.memory_mib}" for card in found.devices]
    told("\n".join([f"driver {found.driver}; {said.outcome.value}: {said.detail}", *cards]))
