"""Tests of the choice of models with which a package is tried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from builder.errors import CheckFailedError
from builder.prove.cards import card_request
from builder.prove.selftest import SelftestTrial, trials_for
from builder.prove.verify import verify_packages
from tests.support.factories.documents import manifest as sample_manifest
from tests.support.factories.releases import manifest as entry_of
from tests.support.factories.releases import write_package
from tests.support.factories.workplace import Site

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


def no_tools() -> Never:
    raise AssertionError


def test_a_package_for_another_system_is_said_to_be_on_no_card_for_that(root: Path, tmp_path: Path) -> None:
    """Defect: the reason was that it is for cuda, which is what the cards are for."""
    site, manifest = Site(root, tmp_path), replace(entry_of("modern"), platform="win-x64")
    cards = card_request(["8.6"], None, None)
    with pytest.raises(CheckFailedError):  # its name says another system
        verify_packages(site.shop, [write_package(tmp_path, manifest)], no_tools, cards, None)
    assert f"{manifest.name}: on no card: it is for cuda on win-x64" in site.reporter.lines
