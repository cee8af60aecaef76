"""Tests that a package's provider runs the official one's nodes and kernels on a virtual card."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from builder.formats.package_names import PackageName
from builder.formats.session_log import CPU_PROVIDER, CUDA_PROVIDER
from builder.prove.virtualcard.sessions import ALL, BASIC, CardSession
from tests.answers import pairs
from tests.answers.card import CAPABILITIES, needs_compiler, place
from tests.answers.models import Model, models
from tests.answers.packages import built, compiled
from tests.answers.pairs import Pair
from tests.support.real_packages import manifest

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def stock() -> Pair:
    return pairs.official(pairs.shop().project.bases["assembled"].ort_version)


def attention(path: Path) -> Model:
    """Write and return a model of one node: multi-head attention in half precision, with heads of 64."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 512, 512]) for name in "qkvo"]
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], domain="com.microsoft", num_heads=8)
    graph = helper.make_graph([node], "attention", tensors[:3], tensors[3:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    feed = {name: np.zeros((1, 512, 512), np.float16) for name in "qkv"}
    return Model(name="attention", path=path, feed=feed, tolerance=0)


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [
        ("6.0", "attention_kernel_batched_impl"),
        ("7.5", "fmha_v2_flash_attention"),  # a cubin from TensorRT, loaded through the driver
        ("8.6", "flash_fwd_kernel"),
        ("12.0", "attention_kernel_batched_impl"),  # ORT 1.21's flash attention supports 8.x and 9.x only
    ],
)
def test_the_provider_sees_the_capability_that_is_faked(
    stock: Pair, tmp_path: Path, capability: str, kernel: str
) -> None:
    """ONNX Runtime selects the kernel of attention by capability: see its ``flash::is_supported``."""
    seen = place(stock, attention(tmp_path / "attention.onnx"), capability)
    assert any(kernel in name for name in seen.launches), seen.launches


Official = Callable[[str, Model, str, int], CardSession]


@pytest.fixture(scope="module", params=built())
def package(request: pytest.FixtureRequest) -> Path:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def pair(package: Path) -> Pair:
    return compiled(package)


@pytest.fixture(scope="module")
def all_models() -> dict[str, Model]:
    return {model.name: model for model in models()}


@pytest.fixture(scope="module")
def official() -> Official:
    """Return a function that opens a model with a version's official libraries, cached for all packages."""
    seen: dict[tuple[str, str, str, int], CardSession] = {}

    def look(version: str, model: Model, capability: str, level: int) -> CardSession:
        key = (version, model.name, capability, level)
        if key not in seen:
            seen[key] = place(pairs.official(version), model, capability, level)
        return seen[key]

    return look


def level_of(package: Path, model: str) -> int:
    """Return the optimisation level of a test.

    At the extended level ONNX Runtime fuses a transformer's nodes into contrib operators, which lean lacks.
    """
    lean = PackageName.parse(package.name).profile == "lean"
    return BASIC if lean and model == "minilm" else ALL


OFFICIAL_INSTEAD = {"5.2": "6.0"}
"""Capability for the official build, which has no code for Maxwell, by that for the package.

For these models ONNX Runtime 1.21.0 selects the same kernels on Pascal as on Maxwell.
"""


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", ["silero", "silero-16k", "magika", "minilm"])
def test_nodes_and_launches_are_the_official_provider_s(
    package: Path,
    pair: Pair,
    all_models: dict[str, Model],
    official: Official,
    name: str,
    capability: str,
) -> None:
    support = manifest(package)["capabilities"]
    assert isinstance(support, dict)
    if support[capability] == "none":
        pytest.skip(f"{package.name} promises nothing for compute capability {capability}")
    model, level = all_models[name], level_of(package, name)
    ours = place(pair, model, capability, level)
    theirs = official(pair.ort_version, model, OFFICIAL_INSTEAD.get(capability, capability), level)
    assert theirs.error == ""
    assert theirs.counts[CUDA_PROVIDER] > theirs.counts[CPU_PROVIDER], "there is something to compare"
    assert (ours.error, ours.nodes) == ("", theirs.nodes)
    assert ours.launches == theirs.launches


def test_lean_lacks_the_kernels_of_what_the_official_host_fuses(
    package: Path, pair: Pair, all_models: dict[str, Model]
) -> None:
    """With ``profile: lean`` and ``host: wheel`` a user who does not lower the level gets this error."""
    told = manifest(package)["onnxruntime"]
    assert isinstance(told, dict)
    if (told["profile"], told["host"]) != ("lean", "wheel"):
        pytest.skip(f"profile {told['profile']}, host {told['host']}: host and provider fit")
    seen = place(pair, all_models["minilm"], "8.6", ALL)
    assert "Failed to find kernel for com.microsoft." in seen.error
