"""Tests of which code runs on which device.

The expected table combines PyTorch's DEVICE_REQUIREMENT and NVIDIA's Blackwell Compatibility Guide.
"""

import re

import pytest

from builder.facts.gpu.architectures import Arch, Capability, architectures, capabilities
from builder.facts.gpu.compatibility import implied, jits_ptx, runs_sass
from builder.facts.gpu.table import CAPABILITIES, KNOWN_SM
from tests.support.messages import Told
from tests.support.tables import table

_ROWS = table("gpus/runs.txt")

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


@pytest.mark.parametrize(("known", "device", "support"), table("gpus/implied.txt"))
def test_what_known_devices_imply_of_one_that_is_not_named(known: str, device: str, support: str) -> None:
    pairs = (pair.split() for pair in known.split(", ") if pair)
    judged = {Capability.parse(name): how for name, how in pairs}
    assert implied(judged, Capability.parse(device)) == support
