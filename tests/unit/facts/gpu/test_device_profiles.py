"""Tests of a GPU's settings against NVIDIA's table of throughput and ONNX Runtime's of operators."""

import json

import pytest

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import profile_of
from tests.support import ROOT
from tests.support.messages import Told


@pytest.mark.parametrize(
    ("capability", "best"),
    [
        ("5.0", "fp32"),  # no arithmetic in fp16
        ("5.2", "fp32"),
        ("5.3", "fp16"),
        ("6.0", "fp16"),
        ("6.1", "fp32"),  # 2 results of fp16 where fp32 has 128
        ("6.2", "fp16"),
        ("7.0", "fp16"),
        ("12.0", "fp16"),
    ],
)
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


@pytest.mark.parametrize(
    ("memory", "batch", "limit", "arena"),
    [
        (None, 8, None, "kSameAsRequested"),
        (1791, 8, 1611, "kSameAsRequested"),
        (1792, 16, 1612, "kSameAsRequested"),
        (6144, 32, 5529, "kSameAsRequested"),
        (7900, 64, 7110, "kNextPowerOfTwo"),  # free on an idle card of 8 GiB
        (24576, 128, 22118, "kNextPowerOfTwo"),
    ],
)
def test_memory_decides_on_the_batch_the_limit_and_the_arena(
    memory: int | None, batch: int, limit: int | None, arena: str
) -> None:
    profile = profile_of(Capability(8, 6), memory)
    assert (profile.batch, profile.memory_limit_mib, profile.arena) == (batch, limit, arena)


def test_a_profile_as_json_has_every_setting(told: Told) -> None:
    told(json.dumps(profile_of(Capability(6, 1), 4096).value(), indent=2))
