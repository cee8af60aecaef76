"""What runs where. The table is PyTorch's DEVICE_REQUIREMENT and NVIDIA's Blackwell Compatibility Guide."""

from __future__ import annotations

import pytest

from builder.core.arch import Arch, Capability, jits_ptx, runs_sass
from builder.core.coverage import CAPABILITIES

SASS_RUNS_ON = {
    "50": "5.0 5.2",
    "52": "5.2",
    "53": "5.3",
    "60": "6.0 6.1",
    "61": "6.1",
    "62": "6.2",
    "70": "7.0 7.5",
    "72": "7.2",
    "75": "7.5",
    "80": "8.0 8.6 8.9",
    "86": "8.6 8.9",
    "87": "8.7",
    "89": "8.9",
    "90": "9.0",
    "90a": "9.0",
    "100": "10.0 10.3",
    "100a": "10.0",
    "100f": "10.0 10.3",
    "101": "11.0",
    "103": "10.3",
    "110": "11.0",
    "120": "12.0 12.1",
    "120a": "12.0",
    "120f": "12.0 12.1",
    "121": "12.1",
}

PTX_RUNS_ON = {
    "52": "5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1",
    "86": "8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1",
    "90": "9.0 10.0 10.3 11.0 12.0 12.1",
    "90a": "9.0",
    "100f": "10.0 10.3",
    "120": "12.0 12.1",
    "120a": "12.0",
    "121": "12.1",
}


@pytest.mark.parametrize(("code", "devices"), SASS_RUNS_ON.items())
def test_sass_runs_on_exactly_these(code: str, devices: str) -> None:
    assert _devices(runs_sass, code) == devices


@pytest.mark.parametrize(("code", "devices"), PTX_RUNS_ON.items())
def test_ptx_is_compiled_for_exactly_these(code: str, devices: str) -> None:
    assert _devices(jits_ptx, code) == devices


@pytest.mark.parametrize(
    ("text", "number", "suffix"), [("sm_90a", 90, "a"), ("compute_120f", 120, "f"), ("50", 50, "")]
)
def test_an_architecture_is_read_in_every_spelling(text: str, number: int, suffix: str) -> None:
    assert (Arch.parse(text).number, Arch.parse(text).suffix) == (number, suffix)


@pytest.mark.parametrize("text", ["", "9", "8.6", "sm_90b", "sm_", "1000", "sm 90"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an architecture"):
        Arch.parse(text)


def _devices(rule: object, code: str) -> str:
    assert callable(rule)
    return " ".join(str(device) for device in CAPABILITIES if rule(Arch.parse(code), device))


def test_capabilities_are_sorted() -> None:
    assert list(CAPABILITIES) == sorted(CAPABILITIES)
    assert Capability.parse("10.3") in CAPABILITIES
