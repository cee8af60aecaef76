"""Tests of the table of GPUs: each capability is in its place, by NVIDIA's list, and no other
list of GPUs exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.facts.gpu import compatibility, table
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.table import (
    CAPABILITIES,
    COMPILED,
    DEVICES,
    EMBEDDED,
    GENERATION_NUMBERS,
    GPUS,
    KNOWN_SM,
    LISTED_GPUS,
    RENAMED,
    by_generation,
    capability_of_product,
)
from tests.support.messages import Told

ALLOWED = (
    "facts/gpu/table.py",
    "contents/cuobjdump.py",  # architectures in the file that cuobjdump is tried on
    *("facts/ort/", "config/build_plan.py", "compile/explain.py"),  # in ONNX Runtime's sources and builds
)
"""Modules that may list several GPUs: the table, and facts about foreign bytes and sources."""

MANY = 4


def test_no_gpu_stands_in_the_table_twice_and_it_is_sorted() -> None:
    devices = [gpu.capability for gpu in GPUS]
    assert devices == sorted(set(devices))
    assert sorted(number for numbers in GENERATION_NUMBERS.values() for number in numbers) == list(KNOWN_SM)


def test_what_was_renamed_and_what_runs_only_its_own_code() -> None:
    assert RENAMED == {101: 110}
    assert "11.0" in map(str, DEVICES)
    assert "10.1" not in map(str, DEVICES)
    assert EMBEDDED == {53: (53,), 62: (62,), 72: (72,), 87: (87,), 101: (101, 110), 110: (110,)}


RELEASE_NOTES = """
    CUDA 12.9 GA       575.51.03  576.02
    CUDA 12.8 GA       570.26     570.65
    CUDA 12.6 GA       560.28.03  560.76
    CUDA 12.5 GA       555.42.02  555.85
    CUDA 12.4 GA       550.54.14  551.61
    CUDA 12.3 GA       545.23.06  545.84
    CUDA 12.2 GA       535.54.03  536.25
    CUDA 12.1 GA       530.30.02  531.14
    CUDA 12.x          525.60.13  528.33
"""
"""CUDA releases with their drivers for Linux and for Windows, from NVIDIA's CUDA Toolkit release notes.

Rows of one release are from the tables of 13.4, minor version compatibility is from 12.8
(docs.nvidia.com/cuda/cuda-toolkit-release-notes, in copies of 2026-11-23).
"""


def test_each_driver_floor_for_windows_is_the_one_in_nvidias_release_notes() -> None:
    told = dict(line.split()[-2:] for line in RELEASE_NOTES.strip().splitlines())
    floors = {driver.linux for driver in compatibility._DRIVERS} | {gpu.floor for gpu in GPUS if gpu.floor}
    before_13 = {floor for floor in floors if floor < "580"}
    asked = {floor: compatibility.windows_floor(floor) for floor in before_13}
    assert asked == {floor: told.get(floor, "565.90") for floor in before_13}
    assert [floor for floor in before_13 if floor not in told] == ["565.57.01"]  # CUDA 12.7 has no toolkit


def test_cuda_13_asks_windows_for_a_branch_alone() -> None:
    """The release notes have N/A for Windows from CUDA 13.0 on, and 580 for any CUDA 13."""
    assert compatibility.windows_floor(table.FLOOR_13) == "580"
    assert compatibility.windows_floor("590.44.01") == "590"


@pytest.mark.parametrize(
    ("nvcc", "ptxas", "arch", "made"),
    [
        ("12.4", None, "90", True),
        ("12.4", None, "120", False),
        ("12.4", "12.8", "120", True),
        ("12.4", "12.4", "120", False),
        ("12.4", "12.8", "121", False),
        ("12.4", "12.9", "120a", False),  # such PTX has no instruction that needs the suffix
        ("12.8", None, "120a", True),
        ("12.8", None, "120f", False),
        ("12.9", None, "120f", True),
        ("11.8", None, "90a", False),
        ("13.0", "12.9", "70", False),
        ("12.9", None, "91", False),
        ("V12.9.86", None, "120f", True),
    ],
)
def test_what_a_compiler_and_a_newer_assembler_make(
    nvcc: str, ptxas: str | None, arch: str, made: bool
) -> None:
    """From the PTX ISA: 7.8 is CUDA 11.8, 8.0 is 12.0 (sm_90a), 8.7 is 12.8, 8.8 is 12.9 (families)."""
    assert compatibility.is_made(nvcc, ptxas, Arch.parse(arch)) is made


def test_an_unknown_architecture_has_no_toolkit() -> None:
    unknown = Arch.parse("91")
    assert (compatibility.first_cuda(unknown), compatibility.last_cuda(unknown)) == (None, None)


def test_what_nvidia_does_not_list_is_known_and_has_no_column() -> None:
    unlisted = {str(gpu.capability): (gpu.generation, gpu.first_cuda) for gpu in COMPILED if not gpu.listed}
    assert unlisted == {
        "8.8": ("Ampere", (13, 0)),
        "10.1": ("Blackwell", (12, 8)),
        "10.7": ("Rubin", (13, 4)),
    }


def test_no_other_module_writes_a_list_of_gpus(root: Path) -> None:
    builder = root / "builder"
    found = {
        module.relative_to(builder).as_posix(): list(written)
        for module in sorted(builder.rglob("*.py"))
        if (written := _lists(ast.parse(module.read_text(encoding="utf-8"))))
    }
    assert {name: lists for name, lists in found.items() if not name.startswith(ALLOWED)} == {}
    assert "facts/ort/units.py" in found


def _lists(tree: ast.Module) -> list[str]:
    """Return the literals that hold at least ``MANY`` architectures, capabilities or generations."""
    return [ast.unparse(node)[:60] for node in ast.walk(tree) if len(set(_gpus(node))) >= MANY]


_WORDS = {*map(str, KNOWN_SM), *map(str, CAPABILITIES), *GENERATION_NUMBERS}


def _gpus(node: ast.AST) -> Iterator[object]:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        values = node.elts
    elif isinstance(node, ast.Dict):
        values = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Call):
        values = [*node.args]
    else:
        return
    for value in values:
        held = value.args[0] if isinstance(value, ast.Call) and value.args else value
        if isinstance(held, ast.Constant) and not isinstance(held.value, bool):
            yield from (word for word in str(held.value).split() if word in _WORDS)


def test_generations_are_nvidias(told: Told) -> None:
    for generation in by_generation(LISTED_GPUS):
        told(f"{generation.name}: {' '.join(str(gpu.capability) for gpu in generation.gpus)}")


def test_jetsons_are_known_as_such() -> None:
    found = {gpu.module: str(gpu.capability) for gpu in LISTED_GPUS if gpu.module}
    assert found == {"Nano": "5.3", "TX2": "6.2", "Xavier": "7.2", "Orin": "8.7", "Thor": "11.0"}
    assert all(gpu.cards.startswith("Jetson ") == bool(gpu.module) for gpu in LISTED_GPUS)


@pytest.mark.parametrize(
    ("product", "named"),
    [
        ("GeForce GTX 750", "GeForce GTX 750"),
        ("Quadro M2000M", "M2000M"),
        ("Tesla M40", "Tesla M40"),
        ("Tesla P100-PCIE-16GB", "Tesla P100"),
        ("Tesla P40", "P40"),
        ("Tesla V100-SXM2-16GB", "Tesla V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA RTX A6000", "RTX A6000"),
    ],
)
def test_cards_are_where_the_table_of_products_has_them(product: str, named: str) -> None:
    (gpu,) = (gpu for gpu in LISTED_GPUS if gpu.capability == capability_of_product(product))
    assert named in gpu.cards
