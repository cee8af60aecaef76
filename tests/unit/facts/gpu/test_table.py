"""Tests of the table of GPUs: each capability is in its place, by NVIDIA's list, and no other
list of GPUs exists."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.facts.gpu import compatibility, drivers
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
from tests.support import tables
from tests.support.messages import Told

ALLOWED = (
    "facts/gpu/table.py",
    "contents/cuobjdump.py",  # architectures in the file that cuobjdump is tried on
    *("facts/ort/units.py", "config/build_plan.py"),  # in ONNX Runtime's builds
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


def test_each_driver_floor_for_windows_is_the_one_in_nvidias_release_notes() -> None:
    told = {linux: windows for _, linux, windows in tables.table("gpus/windows.txt")}
    floors = {driver.linux for driver in drivers.DRIVERS} | {gpu.floor for gpu in GPUS if gpu.floor}
    before_13 = {floor for floor in floors if floor < "580"}
    asked = {floor: drivers.windows_floor(floor) for floor in before_13}
    assert asked == {floor: told.get(floor, "565.90") for floor in before_13}
    assert [floor for floor in before_13 if floor not in told] == ["565.57.01"]  # CUDA 12.7 has no toolkit


def test_cuda_13_asks_windows_for_a_branch_alone() -> None:
    """The release notes have N/A for Windows from CUDA 13.0 on, and 580 for any CUDA 13."""
    assert drivers.windows_floor(drivers.FLOOR_13) == "580"
    assert drivers.windows_floor("590.44.01") == "590"


@pytest.mark.parametrize(("nvcc", "ptxas", "arch", "made"), tables.table("gpus/assemblers.txt"))
def test_what_a_compiler_and_a_newer_assembler_make(nvcc: str, ptxas: str, arch: str, made: str) -> None:
    assert compatibility.is_made(nvcc, ptxas or None, Arch.parse(arch)) is (made == "yes")


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
        module.relative_to(builder).as_posix(): written
        for module in sorted(builder.rglob("*.py"))
        if (written := [*_lists(ast.parse(module.read_text(encoding="utf-8")))])
    }
    assert {name: lists for name, lists in found.items() if not name.startswith(ALLOWED)} == {}
    assert "facts/ort/units.py" in found


def _lists(tree: ast.Module) -> Iterator[str]:
    """Yield the literals that hold at least ``MANY`` architectures, capabilities or generations."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Call)):
            children = ast.iter_child_nodes(node)
            held = (one.args[0] if isinstance(one, ast.Call) and one.args else one for one in children)
            texts = [str(one.value).split() for one in held if isinstance(one, ast.Constant)]
            if len(_WORDS & {word for text in texts for word in text}) >= MANY:
                yield ast.unparse(node)[:60]


_WORDS = {*map(str, KNOWN_SM), *map(str, CAPABILITIES), *GENERATION_NUMBERS}


def test_generations_are_nvidias(told: Told) -> None:
    for generation in by_generation(LISTED_GPUS):
        told(f"{generation.name}: {' '.join(str(gpu.capability) for gpu in generation.gpus)}")


def test_jetsons_are_known_as_such() -> None:
    found = {gpu.module: str(gpu.capability) for gpu in LISTED_GPUS if gpu.module}
    assert found == {"Nano": "5.3", "TX2": "6.2", "Xavier": "7.2", "Orin": "8.7", "Thor": "11.0"}
    assert all(gpu.cards.startswith("Jetson ") == bool(gpu.module) for gpu in LISTED_GPUS)


@pytest.mark.parametrize(("product", "named"), tables.table("gpus/cards.txt"))
def test_cards_are_where_the_table_of_products_has_them(product: str, named: str) -> None:
    (gpu,) = (gpu for gpu in LISTED_GPUS if gpu.capability == capability_of_product(product))
    assert named in gpu.cards
