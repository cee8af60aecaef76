"""Tests on an NVIDIA GPU with onnx's backend tests and models.

A package computes what the official provider computes and what the CPU computes, and a virtual card of the
same capability places nodes as the GPU does.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from builder.facts.gpu.architectures import Capability
from tests.answers import pairs
from tests.answers.card import place
from tests.answers.cases import ONNX_WHEEL, find_cases
from tests.answers.models import models
from tests.answers.outputs import outputs
from tests.answers.packages import built, pair_of
from tests.answers.pairs import Pair
from tests.answers.table import ask_library, differing
from tests.support import ROOT
from tests.support.real_packages import manifest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def capability() -> str:
    """Return the GPU's compute capability, which the driver reports."""
    argv = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    return str(
        Capability.parse(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip())
    )


@pytest.fixture(scope="module", params=["fresh", *built()])
def package(request: pytest.FixtureRequest, capability: str) -> Path:
    """Return the repacked wheel or a package of ``dist/``; skip tests of one without code for this GPU."""
    path: Path = request.getfixturevalue("modern_package") if request.param == "fresh" else request.param
    support = manifest(path)["capabilities"]
    assert isinstance(support, dict)
    if support[capability] == "none":
        pytest.skip(f"{path.name} has no code for compute capability {capability}")
    return path


@pytest.fixture(scope="module")
def pair(package: Path) -> Pair:
    return pair_of(package)


def test_the_same_answers_as_the_official_provider(pair: Pair) -> None:
    """The CUDA provider comes first in both: operators without a CUDA kernel run on the CPU."""
    cases = find_cases(pairs.store().unpack(ONNX_WHEEL))
    env = pairs.environment()
    ours, theirs = (ask_library(each, cases, env, "gpu") for each in (pair, pairs.official(pair.ort_version)))
    assert differing(ours, theirs) == []


@pytest.mark.parametrize("name", ["silero", "silero-16k", "magika", "minilm"])
def test_the_virtual_card_of_its_capability_places_nodes_as_the_gpu_does(
    pair: Pair, capability: str, name: str
) -> None:
    (model,) = (model for model in models() if model.name == name)
    argv = [sys.executable, "-m", "tests.gpu.placing", str(pair.library), str(model.path)]
    done = subprocess.run(argv, cwd=ROOT, env=pairs.environment(), capture_output=True, text=True, check=True)
    real = json.loads(done.stdout)
    assert real["refusal"] is None
    nodes: dict[str, Counter[tuple[str, str]]] = {}
    for provider, operator, node, count in real["nodes"]:
        nodes.setdefault(provider, Counter())[operator, node] += count
    seen = place(pair, model, capability)
    assert (seen.error, seen.nodes) == ("", nodes)


@pytest.mark.parametrize("name", ["silero", "silero-16k", "magika", "minilm"])
def test_a_model_computes_what_it_does_on_the_cpu(pair: Pair, tmp_path: Path, name: str) -> None:
    (model,) = (model for model in models() if model.name == name)
    env = pairs.environment()
    ours, cpu = (outputs(pair, model, provider, env, tmp_path) for provider in ("gpu", "cpu"))
    assert ours.keys() == cpu.keys()
    for output, wanted in cpu.items():
        assert ours[output].shape == wanted.shape
        assert np.allclose(ours[output], wanted, rtol=0, atol=model.tolerance), output
