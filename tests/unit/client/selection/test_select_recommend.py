"""Tests of the model that a machine's memory can hold."""

from __future__ import annotations

import pytest

from builder.client.selection.select import recommend, usable_vram
from builder.config.variants import Project
from builder.formats.manifest import ModelRule

MODELS = (
    ModelRule("1.1b-gpu", "gpu", vram_mib=6000),
    ModelRule("0.6b-gpu", "gpu", vram_mib=3500),
    ModelRule("1.1b-int8", "cpu", cores=8, ram_gib=16),
    ModelRule("0.6b-cpu", "cpu", cores=4, ram_gib=8),
    ModelRule("0.3b-cpu", "cpu"),
)


def test_this_is_the_table_of_a_release(project: Project) -> None:
    assert project.models == MODELS


@pytest.mark.parametrize(
    ("vram", "cores", "ram", "model"),
    [
        (6000, 2, 4, "1.1b-gpu"),
        (5999, 2, 4, "0.6b-gpu"),
        (3500, 2, 4, "0.6b-gpu"),
        (3499, 16, 64, "1.1b-int8"),
        (None, 8, 16, "1.1b-int8"),
        (None, 8, 15, "0.6b-cpu"),
        (None, 7, 16, "0.6b-cpu"),
        (None, 4, 8, "0.6b-cpu"),
        (None, 4, 7, "0.3b-cpu"),
        (None, 3, 64, "0.3b-cpu"),
    ],
)
def test_the_first_model_whose_floors_are_met(vram: int | None, cores: int, ram: int, model: str) -> None:
    rule = recommend(MODELS, vram, cores, ram)
    assert rule is not None
    assert rule.model == model


def test_a_table_without_a_line_that_fits_is_no_model() -> None:
    assert recommend(MODELS[:2], None, 64, 512) is None


@pytest.mark.parametrize(
    ("platform", "ram", "vram", "usable", "model"),
    [
        ("macos-arm64", 8192, None, 2867, "0.6b-cpu"),  # 35 % of 8 GiB by hand: 2867.2
        ("macos-arm64", 16384, None, 5734, "0.6b-gpu"),  # 5734.4
        ("macos-arm64", 18432, None, 6451, "1.1b-gpu"),  # 6451.2
        ("macos-x64", 65536, None, None, "0.6b-cpu"),  # an Intel Mac's memory is not unified
        ("linux-x64", 65536, 4096, 4096, "0.6b-gpu"),
        ("win-x64", 65536, None, None, "0.6b-cpu"),
    ],
)
def test_of_unified_memory_a_model_may_take_35_percent(
    platform: str, ram: int, vram: int | None, usable: int | None, model: str
) -> None:
    found = usable_vram(platform, ram, vram)
    assert found == usable
    rule = recommend(MODELS, found, 4, ram // 1024)
    assert rule is not None
    assert rule.model == model
