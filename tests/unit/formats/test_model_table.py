"""Tests of an application's own table of models."""

from __future__ import annotations

import json

import pytest

from builder.errors import ConfigError
from builder.formats.manifest import ModelRule, loads_models

ROW = {"model": "m", "device": "gpu"}


def test_a_floor_that_a_line_leaves_out_is_0() -> None:
    lines = [{"model": "large", "device": "gpu", "vram_mib": 12000}, {"model": "small", "device": "cpu"}]
    table = loads_models(json.dumps({"models": lines}), "app.json")
    assert table == (ModelRule("large", "gpu", vram_mib=12000), ModelRule("small", "cpu"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "app.json is not JSON"),
        ("[]", "app.json: "),
        ('{"models": []}', "models: the list is empty"),
        ('{"models": {}}', "models: a list is wanted"),
        ('{"models": [1]}', "models[0]: "),
        ('{"model": []}', "models: missing"),
        (json.dumps({"models": [{**ROW, "vram_gib": 8}]}), "models[0].vram_gib: unknown key"),
        (
            json.dumps({"models": [{**ROW, "vram_mib": "8000"}]}),
            "models[0].vram_mib: a whole number",
        ),
        (json.dumps({"models": [{**ROW, "vram_mib": 1e3}]}), "models[0].vram_mib: a whole number"),
        (json.dumps({"models": [ROW, {**ROW, "cores": -1}]}), "models[1].cores: -1 is below 0"),
        (json.dumps({"models": [{**ROW, "device": "npu"}]}), "models[0].device: 'npu'; known: gpu, cpu"),
        (json.dumps({"models": [{**ROW, "device": "cpu", "vram_mib": 1}]}), "models[0].vram_mib: a cpu line"),
        (json.dumps({"models": [{"model": "", "device": "cpu"}]}), "models[0].model: the name is empty"),
        (json.dumps({"models": [{"device": "cpu"}]}), "models[0].model: missing"),
        (json.dumps({"models": [{**ROW, "model": "\ud800"}]}), r"models[0].model: '\ud800' holds half of a"),
    ],
)
def test_what_is_no_table_is_told_by_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads_models(text, "app.json")
    assert said in str(refused.value)
    assert "app.json" in str(refused.value)
