"""Tests of sets that NVIDIA's pinned libraries do not serve; tests/integration reads the libraries' bytes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from builder.config.toolkits import check_is_read, check_served, dumps, missing_in
from builder.facts.gpu.architectures import Arch, Capability
from builder.finding import Code, Severity
from tests.support.factories.binaries import sass
from tests.support.factories.libraries import covered

PINS = (
    *("nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cublas-cu12==12.9.1.4", "nvidia-cufft-cu12==11.4.1.4"),
    *("nvidia-curand-cu12==10.3.10.19", "nvidia-cudnn-cu12==9.10.2.21"),
)


def held(sm: str, pins: tuple[str, ...] = PINS) -> list[str]:
    return [str(finding) for finding in check_served("variants.v.sm", [*map(Arch.parse, sm.split())], pins)]


@pytest.mark.parametrize(
    "sm", ["53", "62", "72", "87", "101", "110", "101a", "75 87", "72 87", "60 62 70 101"]
)
def test_a_set_with_a_jetson_module_is_refused(told: Callable[[object], None], sm: str) -> None:
    """cuRAND 10.3.10.19 holds sm_101."""
    (text,) = held(sm)
    assert text.startswith("error C013 variants.v.sm: no code for ")
    told(text)


@pytest.mark.parametrize("sm", ["50 52 60 61 70", "75 80 86", "89 90a 100f 103 120 121"])
def test_cards_are_served(sm: str) -> None:
    assert held(sm) == []


def test_of_other_versions_nothing_is_known() -> None:
    assert held("87", ("nvidia-cublas-cu12==13.0.0.19",)) == []


def test_a_wheel_that_nobody_read_is_told(told: Callable[[object], None]) -> None:
    """The recorded data have all of the project's pins and not cuBLAS 12.8.4.1."""
    assert list(check_is_read(PINS)) == []
    (finding,) = check_is_read((*PINS, "nvidia-cublas-cu12==12.8.4.1"))
    assert (finding.code, finding.severity) == (Code.C014, Severity.WARNING)
    told(finding)


def test_a_wheel_lacks_what_one_of_its_libraries_lacks() -> None:
    """sm_80 runs on 8.0 to 8.9 except Jetson's 8.7; sm_86 does not run on 8.0."""
    both = missing_in([covered(sass(75, 80)), covered(sass(75, 86))])
    assert {Capability(7, 5), Capability(8, 6), Capability(8, 9)}.isdisjoint(both)
    assert {Capability(8, 0), Capability(8, 7), Capability(9, 0)} <= set(both)
    assert missing_in([]) == ()


def test_what_is_written_down_is_read_back() -> None:
    said = json.loads(dumps({"b==2": (), "a==1": (Capability(5, 3), Capability(11, 0))}))
    assert list(said.items()) == [("a==1", ["5.3", "11.0"]), ("b==2", [])]
