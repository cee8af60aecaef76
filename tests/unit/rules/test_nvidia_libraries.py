"""Sets that NVIDIA's pinned libraries do not serve. What they hold, their bytes say: tests/integration."""

from __future__ import annotations

import pytest

from builder.gpu.architectures import Arch
from builder.rules.nvidia_libraries import hold_libraries

PINS = (
    *("nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cublas-cu12==12.9.1.4", "nvidia-cufft-cu12==11.4.1.4"),
    *("nvidia-curand-cu12==10.3.10.19", "nvidia-cudnn-cu12==9.10.2.21"),
)


def held(sm: str, pins: tuple[str, ...] = PINS) -> list[str]:
    return [str(finding) for finding in hold_libraries("variants.v.sm", [*map(Arch.parse, sm.split())], pins)]


@pytest.mark.parametrize("sm", ["53", "62", "72", "87", "101", "110", "101a", "75 87"])
def test_a_set_with_a_jetson_module_is_refused(sm: str) -> None:
    (text,) = held(sm)
    assert text.startswith("error C013 variants.v.sm: no code for ")
    assert "Jetson modules are ARM machines" in text


@pytest.mark.parametrize("sm", ["50 52 60 61 70", "75 80 86", "89 90a 100f 103 120 121"])
def test_cards_are_served(sm: str) -> None:
    assert held(sm) == []


def test_a_finding_names_cards_wheels_and_the_set_that_is_served() -> None:
    (text,) = held("60 62 70 101")
    assert text == (
        "error C013 variants.v.sm: no code for 6.2 (Jetson TX2), 11.0 (Jetson Thor) in "
        "nvidia-cublas-cu12==12.9.1.4, nvidia-curand-cu12==10.3.10.19, nvidia-cudnn-cu12==9.10.2.21 (read "
        "from their bytes): what is compiled for it would never run. Jetson modules are ARM machines, "
        "packages are for x86-64\n"
        "    wanted: the set 60 70\n"
        "    got:    sm_62, sm_101"
    )


def test_a_set_of_modules_alone_leaves_no_set() -> None:
    assert held("72 87")[0].endswith(
        "\n    wanted: a set of cards: docs/variants.md names them all\n    got:    sm_72, sm_87"
    )


def test_a_library_that_serves_it_is_not_named() -> None:
    """cuRAND 10.3.10.19 holds sm_101."""
    assert "curand" not in held("101")[0]


def test_of_other_versions_nothing_is_known() -> None:
    assert held("87", ("nvidia-cublas-cu12==13.0.0.19",)) == []
