"""Who launches what, device by device, as ORT 1.21.0's sources decide it: transcribed, not computed."""

from __future__ import annotations

import re

import pytest

from builder.gpu.architectures import Arch
from builder.onnxruntime.units import (
    LAUNCHES,
    launches,
    narrowed,
    shared_ptx,
    unused_options,
    without_device_code,
)

DEVICES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121)

FLASH = {80, 86, 87, 89, 90}
"""``is_supported`` of flash_api.cc and lean_api.cc: major 8, or 9.0."""

LAUNCHED = {
    "flash attention": FLASH,
    "lean attention": FLASH,
    "memory-efficient attention for sm_50": {50, 52, 53, 60, 61, 62},
    "memory-efficient attention for sm_70": {70, 72},
    "memory-efficient attention for sm_75": {75},
    "memory-efficient attention for sm_80": {80, 86, 87, 89, 90, 100, 103, 120, 121},
    "mixture of experts": {70, 72, 75, 80, 86, 87, 89},
}
"""memory_efficient_attention.cu: sm >= 80, else >= 75, else >= 70, else >= 50. moe_gemm_kernels_template.h:
from 70 on and below 90, else ``Arch unsupported for MoE GEMM``."""


def arches(*numbers: int) -> tuple[Arch, ...]:
    return tuple(Arch(number // 10, number % 10) for number in numbers)


def test_units_are_launched_on_what_the_sources_ask_for() -> None:
    found = {launch.name: {arch.number for arch in launch.launched(arches(*DEVICES))} for launch in LAUNCHES}
    assert found == LAUNCHED


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.name)
def test_a_unit_is_never_compiled_for_nothing(launch: object) -> None:
    assert isinstance(launch, type(LAUNCHES[0]))
    assert launch.compiled(arches(50)) == set(arches(50))


def test_sets_of_three_variants() -> None:
    legacy, modern, latest = ((50, 52, 60, 61, 70), (75, 80, 86), (89, 90, 100, 120))

    def parts(numbers: tuple[int, ...]) -> dict[str, set[int]]:
        made = narrowed(arches(*numbers), "1.21.0")
        return {launch.name: {arch.number for arch in part} for launch, part in made}

    attention = "memory-efficient attention for sm_"
    assert parts(legacy) == {
        f"{attention}50": {50, 52, 60, 61},
        f"{attention}70": {70},
        f"{attention}75": {50},
        f"{attention}80": {50},
        "mixture of experts": {70},
    }
    assert parts(modern) == {
        "flash attention": {80},
        "lean attention": {80, 86},
        f"{attention}50": {75},
        f"{attention}70": {75},
        f"{attention}75": {75},
        f"{attention}80": {80, 86},
    }
    assert parts(latest) == {
        "flash attention": {89, 90},
        "lean attention": {89, 90},
        f"{attention}50": {89},
        f"{attention}70": {89},
        f"{attention}75": {89},
        "mixture of experts": {89},
    }


def test_options_without_which_nothing_is_lost() -> None:
    both = {"onnxruntime_USE_FLASH_ATTENTION", "onnxruntime_USE_LEAN_ATTENTION"}
    assert unused_options(arches(50, 61, 75), "1.21.0") == both
    assert unused_options(arches(100, 120), "1.21.0") == both
    assert unused_options(arches(75, 80), "1.21.0") == frozenset()


@pytest.mark.parametrize("version", ["1.20.1", "1.22.0", "1.23.2", "1.31.1"])
def test_nothing_is_left_out_of_releases_that_were_not_read(version: str) -> None:
    sm = arches(50, 52, 61, 100)
    assert (launches(version), narrowed(sm, version), unused_options(sm, version)) == ((), (), frozenset())
    assert (without_device_code(version), shared_ptx(sm, version)) == ((), {})


def test_ptx_is_shared_within_a_set_that_holds_both() -> None:
    def pairs(*numbers: int) -> list[tuple[int, int]]:
        return [(new.number, old.number) for new, old in shared_ptx(arches(*numbers), "1.21.0").items()]

    assert pairs(50, 52, 60, 61, 70) == [(52, 50), (61, 60)]
    assert pairs(52, 61, 70) == []
    assert pairs(60, 61, 80, 86, 89, 90, 100, 120) == [(61, 60)]


def test_flash_attention_alone_shares_ptx_from_ampere_to_hopper() -> None:
    flash, experts = LAUNCHES[0], LAUNCHES[-1]
    assert shared_ptx(arches(75, 80, 86), "1.21.0", flash) == {}
    assert shared_ptx(arches(89, 90), "1.21.0", flash) == {Arch(9, 0): Arch(8, 9)}
    assert shared_ptx(arches(89, 90), "1.21.0", experts) == {}


def test_flash_attention_s_sass_for_8_0_serves_8_6_where_the_set_has_it() -> None:
    flash, lean = LAUNCHES[0], LAUNCHES[1]
    assert flash.compiled(arches(75, 80, 86)) == {Arch(8, 0)}
    assert flash.compiled(arches(75, 86)) == {Arch(8, 6)}
    assert flash.compiled((Arch(8, 0, "a"), Arch(8, 6))) == {Arch(8, 0, "a"), Arch(8, 6)}
    assert lean.compiled(arches(75, 80, 86)) == set(arches(80, 86))


def test_a_suffix_shares_nothing() -> None:
    assert shared_ptx((Arch(5, 0), Arch(5, 2, "a")), "1.21.0") == {}


def test_paths_begin_below_the_source_folder_and_lines_are_named() -> None:
    for launch in LAUNCHES:
        assert launch.path.startswith("contrib_ops/cuda/")
        assert re.search(r" line \d+", launch.source)
