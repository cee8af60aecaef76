"""Tests of which code runs on which device.

The expected table combines PyTorch's DEVICE_REQUIREMENT and NVIDIA's Blackwell Compatibility Guide.
"""

from __future__ import annotations

import re

import pytest

from builder.facts.gpu.architectures import Arch, Capability, architectures, capabilities
from builder.facts.gpu.compatibility import implied, jits_ptx, runs_sass
from builder.facts.gpu.table import CAPABILITIES, KNOWN_SM

DEVICES = (
    *("5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.8", "8.9"),
    *("9.0", "10.0", "10.1", "10.3", "10.7", "11.0", "12.0", "12.1"),
)

RUNS = {
    #      50  53  61  70  75  86  88  90  101 107 120
    #        52  60  62  72  80  87  89  100 103 110 121
    "50": "S S p p p p p p p p p p p p p p p p p p p p",
    "52": ". S p p p p p p p p p p p p p p p p p p p p",
    "53": ". . S p p p p p p p p p p p p p p p p p p p",
    "60": ". . . S S p p p p p p p p p p p p p p p p p",
    "61": ". . . . S p p p p p p p p p p p p p p p p p",
    "62": ". . . . . S p p p p p p p p p p p p p p p p",
    "70": ". . . . . . S p S p p p p p p p p p p p p p",
    "72": ". . . . . . . S p p p p p p p p p p p p p p",
    "75": ". . . . . . . . S p p p p p p p p p p p p p",
    "80": ". . . . . . . . . S S p S S p p p p p p p p",
    "86": ". . . . . . . . . . S p S S p p p p p p p p",
    "87": ". . . . . . . . . . . S p p p p p p p p p p",
    "88": ". . . . . . . . . . . . S S p p p p p p p p",
    "89": ". . . . . . . . . . . . . S p p p p p p p p",
    "90": ". . . . . . . . . . . . . . S p p p p p p p",
    "90a": ". . . . . . . . . . . . . . S . . . . . . .",
    "100": ". . . . . . . . . . . . . . . S p S S p p p",
    "100a": ". . . . . . . . . . . . . . . S . . . . . .",
    "100f": ". . . . . . . . . . . . . . . S . S S . . .",
    "101": ". . . . . . . . . . . . . . . . S p p S p p",
    "101a": ". . . . . . . . . . . . . . . . S . . S . .",
    "101f": ". . . . . . . . . . . . . . . . S . . S . .",
    "103": ". . . . . . . . . . . . . . . . . S S p p p",
    "103a": ". . . . . . . . . . . . . . . . . S . . . .",
    "103f": ". . . . . . . . . . . . . . . . . S S . . .",
    "107": ". . . . . . . . . . . . . . . . . . S p p p",
    "107a": ". . . . . . . . . . . . . . . . . . S . . .",
    "107f": ". . . . . . . . . . . . . . . . . . S . . .",
    "110": ". . . . . . . . . . . . . . . . . . . S p p",
    "110a": ". . . . . . . . . . . . . . . . . . . S . .",
    "110f": ". . . . . . . . . . . . . . . . . . . S . .",
    "120": ". . . . . . . . . . . . . . . . . . . . S S",
    "120a": ". . . . . . . . . . . . . . . . . . . . S .",
    "120f": ". . . . . . . . . . . . . . . . . . . . S S",
    "121": ". . . . . . . . . . . . . . . . . . . . . S",
    "121a": ". . . . . . . . . . . . . . . . . . . . . S",
    "121f": ". . . . . . . . . . . . . . . . . . . . . S",
}
"""S: SASS runs, and PTX can be compiled. p: only PTX. A dot: neither.

Plain SASS follows DEVICE_REQUIREMENT in PyTorch's torch/cuda/__init__.py: each architecture runs up to the
end of its major version, except 50 and 52 not on 5.3, 60 and 61 not on 6.2, 70 not on 7.2, 80 and 86 not on
8.7, 100 not on 10.1; 53, 62, 72 and 87 run on their own devices only; 101 runs on 10.1 and 11.0 only.

Suffixes and PTX follow NVIDIA's Blackwell Compatibility Guide and its post on family-specific features: ``a``
runs on exactly its own device; ``f``: 100 on 10.0 and 10.3, 103 on 10.3, 120 on 12.0 and 12.1, 121 on 12.1;
PTX is compiled for newer devices only.

PyTorch has neither 88 nor 107: they follow the rule for devices of their major version, and ptxas 13.5 takes
``100f`` and ``103f`` PTX for sm_107.
"""


@pytest.mark.parametrize(("code", "row"), RUNS.items())
def test_sass_runs_on_exactly_these(code: str, row: str) -> None:
    found = [runs_sass(Arch.parse(code), Capability.parse(device)) for device in DEVICES]
    assert found == [mark == "S" for mark in row.split()]


@pytest.mark.parametrize(("code", "row"), RUNS.items())
def test_ptx_is_compiled_for_exactly_these(code: str, row: str) -> None:
    found = [jits_ptx(Arch.parse(code), Capability.parse(device)) for device in DEVICES]
    assert found == [mark in "Sp" for mark in row.split()]


def test_the_table_has_every_architecture_and_every_device() -> None:
    plain = {str(number) for number in KNOWN_SM}
    suffixed = {f"{number}{suffix}" for number in KNOWN_SM for suffix in ("a", "f") if number >= 100}
    assert set(RUNS) == plain | suffixed | {"90a"}
    assert {str(device) for device in CAPABILITIES} <= set(DEVICES)
    assert {len(row.split()) for row in RUNS.values()} == {len(DEVICES)}


@pytest.mark.parametrize(
    ("text", "number", "suffix"), [("sm_90a", 90, "a"), ("compute_120f", 120, "f"), ("50", 50, "")]
)
def test_an_architecture_is_read_in_every_spelling(text: str, number: int, suffix: str) -> None:
    assert (Arch.parse(text).number, Arch.parse(text).suffix) == (number, suffix)


@pytest.mark.parametrize("text", ["", "9", "8.6", "sm_90b", "sm_", "1000", "sm 90"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    message = f"{text!r} is not an architecture like 86, sm_90a or compute_120"
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        Arch.parse(text)


@pytest.mark.parametrize("text", ["", "9", "86", "8.66", "123.4", "8,6", "8.6a"])
def test_what_is_no_capability_is_refused(text: str) -> None:
    message = f"{text!r} is not a compute capability like 8.6"
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        Capability.parse(text)


@pytest.mark.parametrize("text", ["8.6,5.2,12.0", "86,52,120", "sm_86, sm_52 ,sm_120", "compute_86,5.2,120"])
def test_a_flag_takes_every_spelling_with_commas_between(text: str) -> None:
    assert architectures(text) == (Arch(8, 6), Arch(5, 2), Arch(12, 0))
    assert capabilities(text) == (Capability(8, 6), Capability(5, 2), Capability(12, 0))


def test_only_an_architecture_has_a_suffix() -> None:
    assert architectures("90a,sm_120f") == (Arch(9, 0, "a"), Arch(12, 0, "f"))
    with pytest.raises(ValueError, match=r"^'sm_90a' is not a compute capability like 8\.6$"):
        capabilities("8.6,sm_90a")


@pytest.mark.parametrize("word", ["", "8", "8.66", "123.4", "1000", "sm_", "90b", "86-real", "RTX", "²5"])
def test_a_word_of_a_flag_that_is_none_is_named(word: str) -> None:
    with pytest.raises(
        ValueError, match=f"^{re.escape(repr(word))} is not an architecture like 86, 8.6, sm_86"
    ):
        architectures(f"86,{word}")
    with pytest.raises(ValueError, match=f"^{re.escape(repr(word))} is not a compute capability like 8.6"):
        capabilities(f"{word},86")


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
