"""Tests of driver versions, product names and platforms, and of a GPU's settings.

Settings follow NVIDIA's table of throughput and ONNX Runtime's of operators.
"""

import json
import re

import pytest

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import (
    Device,
    above_ceiling,
    below_floor,
    parse_driver,
    platform_of,
    profile_of,
)
from builder.facts.gpu.table import capability_of_product
from tests.support import ROOT
from tests.support.messages import Told
from tests.support.tables import table


@pytest.mark.parametrize(("kind", "limit", "driver", "place"), table("gpus/limits.txt"))
def test_a_driver_is_within_its_limits(kind: str, limit: str, driver: str, place: str) -> None:
    outside = {"floor": below_floor, "ceiling": above_ceiling}[kind]
    assert outside(driver, limit) is (place == "outside")


@pytest.mark.parametrize("text", ["", "abc", "[N/A]", "570.", "570.x", "5.7.0.1.2", "12345", "-1"])
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a driver version like 525.60.13") + "$"):
        parse_driver(text)


def test_a_driver_version_is_its_numbers() -> None:
    assert parse_driver(" 525.60.13\n") == (525, 60, 13)


@pytest.mark.parametrize(
    ("capability", "product"),
    [*((row[0], "  ".join(row[1:])) for row in table("gpus/products.txt")), ("none", "")],
)
def test_the_capability_of_a_product_or_of_no_single_chip(capability: str, product: str) -> None:
    assert str(capability_of_product(product) or "none") == capability


@pytest.mark.parametrize(("system", "machine", "platform"), table("gpus/platforms.txt"))
def test_platforms(system: str, machine: str, platform: str) -> None:
    assert platform_of(system, machine) == platform


@pytest.mark.parametrize(
    ("capability", "memory", "text"),
    [
        (Capability(9, 0), 143771, "NVIDIA H200 (compute capability 9.0, 143771 MiB)"),
        (None, 0, "NVIDIA H200 (capability unknown, 0 MiB)"),
        (None, None, "NVIDIA H200 (capability unknown)"),
    ],
)
def test_a_device_in_words(capability: Capability | None, memory: int | None, text: str) -> None:
    assert str(Device(0, "GPU-1", "NVIDIA H200", capability, memory, "570.26")) == text


@pytest.mark.parametrize(("capability", "best"), table("gpus/number_types.txt"))
def test_a_number_type_is_taken_where_the_chip_computes_with_it(capability: str, best: str) -> None:
    profile = profile_of(Capability.parse(capability), 8192)
    assert (profile.dtypes["low"][0], profile.dtypes["medium"][0]) == (best, best)
    assert profile.dtypes["high"] == ("fp32",)
    assert {types[-1] for types in profile.dtypes.values()} == {"fp32"}
    assert capability in profile.why


def test_no_level_is_int8_since_cuda_has_not_the_operators_of_such_files() -> None:
    listed = (ROOT / "tests/data/operators/cuda-1.21.0.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in listed if line.startswith(("|DynamicQuantizeLinear|", "|MatMulInteger|"))]
    (row,) = rows
    assert "**T1** = tensor(int8)<br/> **T2** = tensor(int8)<br/>" in row, "DynamicQuantizeLinear makes uint8"
    assert all("int8" not in types for types in profile_of(Capability(8, 6), 8192).dtypes.values())


@pytest.mark.parametrize(("capability", "has"), [("7.5", False), ("8.0", True), ("8.6", True)])
def test_bf16_and_tf32_begin_with_8_0(capability: str, has: bool) -> None:
    profile = profile_of(Capability.parse(capability), None)
    assert (profile.bf16, profile.tf32) == (has, has)


@pytest.mark.parametrize(("memory", "batch", "limit", "arena"), table("gpus/memory.txt"))
def test_what_memory_decides_on(memory: str, batch: str, limit: str, arena: str) -> None:
    profile = profile_of(Capability(8, 6), int(memory) if memory else None)
    assert (str(profile.batch), str(profile.memory_limit_mib or ""), profile.arena) == (batch, limit, arena)


def test_a_profile_as_json_has_every_setting(told: Told) -> None:
    told(json.dumps(profile_of(Capability(6, 1), 4096).value(), indent=2))
