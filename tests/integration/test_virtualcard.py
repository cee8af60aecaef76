"""Tests of real packages on virtual cards: the repacked wheel and a minimal package, with every model."""

from pathlib import Path

import pytest

from builder.contents.card_grid import Grid, grid_name, loads
from builder.facts.gpu.table import CAPABILITIES
from builder.formats.session_log import CUDA_PROVIDER
from builder.prove.virtualcard.sessions import CardSession
from tests.answers import pairs
from tests.answers.card import place
from tests.answers.models import models
from tests.support.fakes.verbs import invoke

NATIVE = {"6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0"}
"""Capabilities served by SASS of the official build: 60, 70, 75, 80, 86 and 90a. Source: cuobjdump."""
NAMES = ["silero_vad", "magika", "minilm", "decoder"]
NEWER = {"10.0", "10.3", "12.0", "12.1"}


@pytest.fixture(scope="module")
def grid(modern_package: Path, dist: Path) -> Grid:
    page = dist / "cards.md"
    done = invoke("verify", "--card", "all", "--grid", page, "--dist", dist, modern_package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.read_text().count("\n| ") == len(CAPABILITIES) + 2
    return loads((dist / grid_name(modern_package.name)).read_bytes(), "cards.json")


def test_each_model_opens_on_each_card_that_the_wheel_serves(grid: Grid) -> None:
    chosen = {card.capability: card.chosen for card in grid.cards}
    assert {capability for capability, how in chosen.items() if how == "native"} == NATIVE
    assert {capability for capability, how in chosen.items() if how == "jit"} == NEWER
    for card in grid.cards:
        assert [model.name for model in card.models] == NAMES
        if card.chosen:
            assert {(model.error, *model.refused) for model in card.models} == {("",)}


def test_the_transformer_is_where_the_official_wheel_has_it(grid: Grid) -> None:
    (minilm,) = (model for model in models() if model.name == "minilm")
    official: CardSession = place(pairs.official(grid.onnxruntime), minilm, "8.6")
    (card,) = (card for card in grid.cards if card.capability == "8.6")
    ours = card.models[NAMES.index("minilm")]
    assert official.error == ""
    assert official.counts[CUDA_PROVIDER] > 180
    assert (ours.nodes, ours.launches) == (official.counts, official.launched)


def test_a_decoder_s_layer_is_on_cuda_as_a_whole(grid: Grid) -> None:
    """The layer has eleven nodes, four of them of com.microsoft; attention launches a kernel on each card."""
    for card in (card for card in grid.cards if card.chosen):
        decoder = card.models[NAMES.index("decoder")]
        assert decoder.nodes == {CUDA_PROVIDER: 11}
        assert decoder.launches > 10


def test_a_card_that_it_has_nothing_for_refuses_the_first_kernel(grid: Grid) -> None:
    (card,) = (card for card in grid.cards if card.capability == "5.2")
    assert card.chosen is None
    refused = {model.name: set(model.refused) for model in card.models}
    # Grouped-query attention in half precision needs 5.3: below, the decoder is opened, but not run.
    assert refused == {"silero_vad": {"209"}, "magika": {"209"}, "minilm": {"209"}, "decoder": set()}


def test_a_minimal_package_runs_every_model_on_the_cpu(legacy_package: Path, dist: Path) -> None:
    """Profile minimal has few kernels but memory copies: no node of the models is on CUDA."""
    done = invoke("verify", "--card", "5.2", "--card", "7.0", "--dist", dist, legacy_package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("minilm: ") == 2
    assert "fails" not in done.stdout
