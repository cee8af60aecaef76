"""Tests of an application's own table of models."""

from __future__ import annotations

import json

import pytest

from builder.errors import ConfigError
from builder.formats.manifest import ModelRule, loads_models
from tests.support.messages import Told

ROW = {"model": "m", "device": "gpu"}


def test_a_floor_that_a_line_leaves_out_is_0() -> None:
    lines = [{"model": "large", "device": "gpu", "vram_mib": 12000}, {"model": "small", "device": "cpu"}]
    table = loads_models(json.dumps({"models": lines}), "app.json")
    assert table == (ModelRule("large", "gpu", vram_mib=12000), ModelRule("small", "cpu"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"models": []}',
        '{"models": {}}',
        '{"models": [1]}',
        '{"model": []}',
        json.dumps({"models": [ROW, {**ROW, "cores": -1}]}),
        json.dumps({"models": [{"device": "cpu"}]}),
        *(
            json.dumps({"models": [{**ROW, **changes}]})
            for changes in (
                {"vram_gib": 8},
                {"vram_mib": "8000"},
                {"vram_mib": 1e3},
                {"device": "npu"},
                {"device": "cpu", "vram_mib": 1},
                {"model": ""},
                {"model": "\ud800"},
            )
        ),
    ],
)
def test_what_is_no_table_is_told_by_its_place(text: str, told: Told) -> None:
    with pytest.raises(ConfigError) as refused:
        loads_models(text, "app.json")
    told(refused.value)
