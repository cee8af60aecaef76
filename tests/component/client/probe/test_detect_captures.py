"""Tests of detect with outputs of nvidia-smi from public issues: ``tests/data/nvidia-smi``."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.client.doctor.observations import Detection, Outcome
from builder.client.probe.detect import detect
from tests.doubles.captures import CAPTURES, Quoted, quoted
from tests.doubles.gpus import machine, probes


def found_by(tmp_path: Path, capture: Quoted) -> Detection:
    return detect(machine(tmp_path, smi=(capture.program(tmp_path / "bin"),)))


def test_cards_of_two_generations_with_all_they_say(tmp_path: Path) -> None:
    found = found_by(tmp_path, quoted("mixed"))
    assert [(card.name, card.uuid, str(card.capability), card.driver) for card in found.devices] == [
        ("NVIDIA TITAN V", "GPU-b5169cef-2205-c30e-f2b3-220cfa14bafd", "7.0", "570.86.15"),
        ("NVIDIA RTX 5880 Ada Generation", "GPU-7518f6b0-991f-ce2b-3d37-c779130d3137", "8.9", "570.86.15"),
    ]


def test_a_driver_without_compute_cap_is_known_by_product(tmp_path: Path) -> None:
    capture = quoted("kepler-440")
    capture.refusals = quoted("compute-cap-470").refusals
    (card,) = found_by(tmp_path, capture).devices
    assert (card.name, str(card.capability), card.driver) == ("Tesla K40c", "3.5", "440.64.00")


def test_memory_that_is_not_said_is_no_missing_gpu(tmp_path: Path) -> None:
    (card,) = found_by(tmp_path, quoted("unified-gb10")).devices
    assert (card.name, str(card.capability), card.memory_mib, card.uuid) == ("NVIDIA GB10", "12.1", None, "")


def test_a_notebook_under_wsl_has_a_driver_version_of_two_parts(tmp_path: Path) -> None:
    (card,) = found_by(tmp_path, quoted("wsl")).devices
    assert (str(card.capability), card.driver) == ("7.5", "510.06")


def test_a_card_whose_name_is_not_said_is_still_a_card(tmp_path: Path) -> None:
    (card,) = found_by(tmp_path, quoted("wsl-arm")).devices
    assert (card.name, str(card.capability)) == ("NVIDIA GPU", "12.1")


def test_a_half_broken_driver_lists_cards_without_a_name_to_choose_them_by(tmp_path: Path) -> None:
    found = found_by(tmp_path, quoted("no-uuid"))
    assert [card.uuid for card in found.devices] == ["", "", "GPU-123123-1234-1234-1234-123123123", "", ""]
    assert [str(card.capability) for card in found.devices] == ["3.7", "3.7", "7.5", "3.7", "3.7"]


def test_a_divided_card_does_not_promise_the_whole_cards_memory(tmp_path: Path) -> None:
    capture = quoted("mig")
    capture.rows[0]["memory.total"] = "81920"
    (card,) = found_by(tmp_path, capture).devices
    assert (str(card.capability), card.memory_mib, card.mig) == ("8.0", None, ())


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch"),
        ("not-loaded-wsl", 9, "couldn't communicate with the NVIDIA driver"),
    ],
)
def test_an_error_on_stdout_is_kept_word_for_word(tmp_path: Path, name: str, code: int, words: str) -> None:
    found = found_by(tmp_path, quoted(name))
    said = probes(found)["nvidia-smi"]
    assert (found.devices, said.outcome, said.code) == ((), Outcome.FAILED, code)
    assert words in said.detail


@pytest.mark.parametrize(("name", "code"), [("no-devices", 6), ("no-supported", 255)])
def test_a_driver_that_works_and_has_no_card_is_no_failure(tmp_path: Path, name: str, code: int) -> None:
    said = probes(found_by(tmp_path, quoted(name)))["nvidia-smi"]
    assert (said.outcome, said.code) == (Outcome.NONE, code)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_capture_says_where_it_is_from_and_gives_no_traceback(tmp_path: Path, path: Path) -> None:
    assert path.read_text().startswith("source: https://github.com/")
    assert probes(found_by(tmp_path, quoted(path.stem)))["nvidia-smi"].detail
