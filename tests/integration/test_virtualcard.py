"""Tests of virtual cards: every model on real packages, and the client's findings where a card refuses the
official provider."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Kind
from builder.client.doctor.advice import MachineFinding
from builder.client.doctor.check_cuda import cpu_fallback, numbered_failures
from builder.client.doctor.observations import Observations, SessionTrial
from builder.client.probe.processes import asker
from builder.client.trials.try_out import OrtTrials
from builder.contents.card_grid import Grid, grid_name, loads
from builder.facts.gpu.table import CAPABILITIES
from builder.formats.session_log import CUDA_PROVIDER
from builder.prove.virtualcard.sessions import CardSession, VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import needs_compiler, place, runtime
from tests.answers.models import models
from tests.answers.pairs import PROVIDER
from tests.support.fakes.verbs import invoke

pytestmark = needs_compiler

LTO_IR = 8
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
    assert refused == {name: {"209"} for name in ("silero_vad", "magika", "minilm", "decoder")}


def test_a_minimal_package_runs_every_model_on_the_cpu(legacy_package: Path, dist: Path) -> None:
    """Profile minimal has few kernels but memory copies: no node of the models is on CUDA."""
    done = invoke("verify", "--card", "5.2", "--card", "7.0", "--dist", dist, legacy_package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("minilm: ") == 2
    assert "fails" not in done.stdout


@pytest.fixture(scope="module")
def stock() -> Path:
    return pairs.official(pairs.shop().project.bases["assembled"].ort_version).library


@pytest.fixture(scope="module")
def ptx_alone(stock: Path, module_folder: Path) -> Path:
    """Return the library with cubins marked as LTO IR: a driver can use only PTX, of CUDA 12.2 or newer."""
    for file in (stock, *stock.parent.glob("libonnxruntime_providers_[cs]*.so")):
        shutil.copy(file, module_folder / file.name)
    provider = module_folder / PROVIDER
    data = bytearray(provider.read_bytes())
    for container in read_containers(bytes(data)):
        for image in container.images:
            if image.kind is Kind.SASS:
                data[image.offset : image.offset + 2] = LTO_IR.to_bytes(2, "little")
    provider.write_bytes(data)
    return module_folder / stock.name


def tried(
    host: Path, capability: str, driver: str, folder: Path
) -> tuple[SessionTrial, list[MachineFinding]]:
    """Return the client's trial of a session with a library on a virtual card, and its findings."""
    card = VirtualCard(capability=capability, driver=driver)
    env = {**os.environ, **environment_of(host, card, runtime(), folder)}
    trial = OrtTrials(asker(env), sys.executable).compute(host, "cuda")
    seen = Observations(trial=trial)
    return trial, [*numbered_failures(seen), *cpu_fallback(seen)]


@pytest.mark.parametrize(
    ("capability", "driver", "number", "code", "advice"),
    [
        ("5.2", "580.65.06", 209, "D022", "Run `install` again."),
        ("8.6", "470.256.02", 35, "D021", "Update the NVIDIA driver"),
    ],
)
def test_the_official_provider_where_it_cannot_run(
    stock: Path, tmp_path: Path, capability: str, driver: str, number: int, code: str, advice: str
) -> None:
    trial, findings = tried(stock, capability, driver, tmp_path)
    assert (trial.code, trial.on_cpu) == (number, True)
    assert [one.code for one in findings] == [code, "D403"]
    assert advice in findings[0].do


def test_ptx_that_is_newer_than_the_driver(ptx_alone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    trial, findings = tried(ptx_alone, "9.0", "525.60.13", tmp_path_factory.mktemp("older"))
    assert (trial.code, trial.on_cpu) == (222, True)
    assert [one.code for one in findings] == ["D023", "D403"]
    assert "Update the driver" in findings[0].do
    assert tried(ptx_alone, "9.0", "580.65.06", tmp_path_factory.mktemp("newer"))[0].code is None


def test_no_card_for_the_driver_is_no_failure_of_cuda(stock: Path, tmp_path: Path) -> None:
    """Driver branch 590 does not support Maxwell."""
    trial, findings = tried(stock, "5.2", "590.44.01", tmp_path)
    assert (trial.code, trial.on_cpu) == (100, True)
    assert [one.code for one in findings] == ["D403"]
