"""Tests of which code runs on which device.

The expected table combines PyTorch's DEVICE_REQUIREMENT and NVIDIA's Blackwell Compatibility Guide.
"""

from __future__ import annotations

import re

import pytest

from builder.facts.gpu.architectures import Arch, Capability, architectures, capabilities
from builder.facts.gpu.compatibility import implied, jits_ptx, runs_sass
from builder.facts.gpu.table import CAPABILITIES, KNOWN_SM
from tests.support import ROOT
from tests.support.messages import Told

_ROWS = [
    line.split() for line in (ROOT / "tests/data/gpus/runs.txt").read_text().splitlines() if line[0] != "#"
]

DEVICES = _ROWS[0][1:]

RUNS = {code: row for code, *row in _ROWS[1:]}


@pytest.mark.parametrize("code", RUNS)
def test_code_runs_on_exactly_these_devices(code: str) -> None:
    arch, devices = Arch.parse(code), [Capability.parse(device) for device in DEVICES]
    assert [runs_sass(arch, device) for device in devices] == [mark == "S" for mark in RUNS[code]]
    assert [jits_ptx(arch, device) for device in devices] == [mark in "Sp" for mark in RUNS[code]]


def test_the_table_has_every_architecture_and_every_device() -> None:
    plain = {str(number) for number in KNOWN_SM}
    suffixed = {f"{number}{suffix}" for number in KNOWN_SM for suffix in ("a", "f") if number >= 100}
    assert set(RUNS) == plain | suffixed | {"90a"}
    assert {str(device) for device in CAPABILITIES} <= set(DEVICES)
    assert {len(row) for row in RUNS.values()} == {len(DEVICES)}


@pytest.mark.parametrize(
    ("text", "number", "suffix"), [("sm_90a", 90, "a"), ("compute_120f", 120, "f"), ("50", 50, "")]
)
def test_an_architecture_is_read_in_every_spelling(text: str, number: int, suffix: str) -> None:
    assert (Arch.parse(text).number, Arch.parse(text).suffix) == (number, suffix)


@pytest.mark.parametrize("text", ["", "9", "8.6", "sm_90b", "sm_", "1000", "sm 90"])
def test_what_is_no_architecture_is_refused(text: str, told: Told) -> None:
    with pytest.raises(ValueError, match="is not an architecture like") as caught:
        Arch.parse(text)
    told(caught.value)


@pytest.mark.parametrize("text", ["", "9", "86", "8.66", "123.4", "8,6", "8.6a"])
def test_what_is_no_capability_is_refused(text: str, told: Told) -> None:
    with pytest.raises(ValueError, match="is not a compute capability like") as caught:
        Capability.parse(text)
    told(caught.value)


@pytest.mark.parametrize("text", ["8.6,5.2,12.0", "86,52,120", "sm_86, sm_52 ,sm_120", "compute_86,5.2,120"])
def test_a_flag_takes_every_spelling_with_commas_between(text: str) -> None:
    assert architectures(text) == (Arch(8, 6), Arch(5, 2), Arch(12, 0))
    assert capabilities(text) == (Capability(8, 6), Capability(5, 2), Capability(12, 0))


def test_only_an_architecture_has_a_suffix() -> None:
    assert architectures("90a,sm_120f") == (Arch(9, 0, "a"), Arch(12, 0, "f"))
    with pytest.raises(ValueError, match=r"^'sm_90a' is not a compute capability like 8\.6$"):
        capabilities("8.6,sm_90a")


@pytest.mark.parametrize("word", ["", "8", "8.66", "123.4", "1000", "sm_", "90b", "86-real", "RTX", "²5"])
def test_a_word_of_a_flag_that_is_none_is_named(word: str, told: Told) -> None:
    for parse in (architectures, capabilities):
        with pytest.raises(ValueError, match=f"^{re.escape(repr(word))} is not ") as caught:
            parse(f"86,{word}")
        told(caught.value)


def test_values_are_written_as_they_are_read() -> None:
    assert (str(Capability.parse(" 12.1 ")), str(Arch.parse(" sm_120f\n"))) == ("12.1", "120f")


@pytest.mark.parametrize(
    ("known", "device", "support"),
    [
        ("8.6 native, 8.9 native, 9.0 native, 10.0 jit, 10.3 jit, 12.0 jit", "8.8", "native"),
        ("8.6 native, 8.9 native, 9.0 native, 10.0 jit, 10.3 jit, 12.0 jit", "10.7", "jit"),
        ("8.6 native, 9.0 native, 10.3 jit, 12.0 jit, 12.1 jit", "13.0", "jit"),
        ("8.6 native, 9.0 native, 10.3 native, 12.1 native", "10.7", "none"),  # the code may be sm_103a
        ("9.0 native, 10.0 native, 10.3 jit, 12.0 none", "10.7", "none"),  # the code may be compute_100f
        ("8.6 native, 9.0 none, 10.0 jit, 12.0 jit", "9.5", "none"),
        ("8.7 native, 8.6 none, 8.9 native", "8.8", "none"),
        ("8.6 partial, 8.9 native", "8.8", "none"),
        ("8.6 native", "8.7", "none"),
        ("8.6 native", "5.0", "none"),
        ("", "8.8", "none"),
    ],
)
def test_what_known_devices_imply_of_one_that_is_not_named(known: str, device: str, support: str) -> None:
    """The rules are those of NVIDIA's compatibility guides: SASS by minor version, newer devices
    by PTX, suffixes not."""
    pairs = (pair.split() for pair in known.split(", ") if pair)
    found = {Capability.parse(name): how for name, how in pairs}
    assert implied(found, Capability.parse(device)) == support
