"""Tests of the client's findings for sessions of the official provider that a virtual card refuses."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Kind
from builder.client.doctor.advice import MachineFinding
from builder.client.doctor.check_cuda import cpu_fallback, numbered_failures
from builder.client.doctor.observations import Observations, SessionTrial
from builder.client.probe.processes import asker
from builder.client.trials.try_out import OrtTrials
from builder.prove.virtualcard.sessions import VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.answers.pairs import PROVIDER

pytestmark = needs_compiler
LTO_IR = 8


@pytest.fixture(scope="module")
def stock() -> Path:
    return pairs.official(pairs.shop().project.bases["assembled"].ort_version).library


@pytest.fixture(scope="module")
def ptx_alone(stock: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library with cubins marked as LTO IR: a driver can use only PTX, of CUDA 12.2 or newer."""
    folder = tmp_path_factory.mktemp("ptx")
    for file in (stock, *stock.parent.glob("libonnxruntime_providers_[cs]*.so")):
        shutil.copy(file, folder / file.name)
    provider = folder / PROVIDER
    data = bytearray(provider.read_bytes())
    for container in read_containers(bytes(data)):
        for image in container.images:
            if image.kind is Kind.SASS:
                data[image.offset : image.offset + 2] = LTO_IR.to_bytes(2, "little")
    provider.write_bytes(data)
    return folder / stock.name


@contextmanager
def on_card(host: Path, card: VirtualCard) -> Iterator[OrtTrials]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **environment_of(host, card, runtime(), Path(folder))}

        yield OrtTrials(asker(env), sys.executable)


def tried(host: Path, capability: str, driver: str) -> tuple[SessionTrial, list[MachineFinding]]:
    with on_card(host, VirtualCard(capability=capability, driver=driver)) as sessions:
        trial = sessions.compute(host, "cuda")
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
    stock: Path, capability: str, driver: str, number: int, code: str, advice: str
) -> None:
    trial, findings = tried(stock, capability, driver)
    assert (trial.code, trial.on_cpu) == (number, True)
    assert [one.code for one in findings] == [code, "D403"]
    assert advice in findings[0].do


def test_ptx_that_is_newer_than_the_driver(ptx_alone: Path) -> None:
    trial, findings = tried(ptx_alone, "9.0", "525.60.13")
    assert (trial.code, trial.on_cpu) == (222, True)
    assert [one.code for one in findings] == ["D023", "D403"]
    assert "Update the driver" in findings[0].do
    assert tried(ptx_alone, "9.0", "580.65.06")[0].code is None


def test_no_card_for_the_driver_is_no_failure_of_cuda(stock: Path) -> None:
    """Driver branch 590 does not support Maxwell."""
    trial, findings = tried(stock, "5.2", "590.44.01")
    assert (trial.code, trial.on_cpu) == (100, True)
    assert [one.code for one in findings] == ["D403"]
