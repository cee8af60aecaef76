"""Tests of the choice of models with which a package is tried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.builds.proving import trials_for
from builder.pipeline.selftest import SelftestTrial
from tests.support.factories.documents import manifest as sample_manifest

TRIALS = (
    SelftestTrial("plain", Path("plain.onnx"), ()),
    SelftestTrial("decoder", Path("decoder.onnx"), (), contrib=True),
)


@pytest.mark.parametrize(
    ("host", "profile", "names"),
    [
        ("wheel", "minimal", ["plain", "decoder"]),
        ("source", "full", ["plain", "decoder"]),
        ("source", "lean", ["plain"]),
        ("source", "minimal", ["plain"]),
        ("wheel", None, ["plain", "decoder"]),
    ],
)
def test_a_host_without_contrib_operators_opens_no_model_that_has_them(
    host: str, profile: str | None, names: list[str]
) -> None:
    made = sample_manifest()
    manifest = replace(made, onnxruntime=replace(made.onnxruntime, host=host, profile=profile))
    assert [trial.name for trial in trials_for(manifest, TRIALS)] == names
