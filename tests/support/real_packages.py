"""Real packages, read and run by programs of others: the system's tar, and the smoke program in C."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.adapters.test_models.selftest_graphs import stock_outputs
from builder.builds.wiring import Wiring
from builder.pipeline.selftest import silero_inputs
from builder.project.inputs import SELFTEST_MODEL
from tests.support import ROOT

MINIMAL = {
    "libcudart.so.12",
    "libonnxruntime.so.1",
    "libonnxruntime_providers_cuda.so",
    "libonnxruntime_providers_shared.so",
}
"""The minimal provider needs cudart alone: what nothing needs is left out."""
LIBRARIES = MINIMAL | {
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_ops.so.9",
    "libcufft.so.11",
    "libcurand.so.10",
    "libnvrtc-builtins.so.12.9",
    "libnvrtc.so.12",
}
"""ORT's three, CUDA's seven, cuDNN's eight."""
_TAR = ("tar", "--use-compress-program=zstd --long=27")


def listing(package: Path) -> list[str]:
    """A row for each member."""
    done = subprocess.run([*_TAR, "-tvf", package], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def manifest(package: Path) -> dict[str, object]:
    """The first member: tar stops behind it."""
    member = f"{package.name.removesuffix('.tar.zst')}/manifest.json"
    argv = (*_TAR, "--occurrence=1", "-xOf", package, member)
    done = subprocess.run(argv, capture_output=True, check=False)  # zstd ends by SIGPIPE
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def unpack(package: Path, folder: Path) -> Path:
    """Unpack into a new ``folder``, without the top folder."""
    folder.mkdir()
    subprocess.run([*_TAR, "--strip-components=1", f"--directory={folder}", "-xf", package], check=True)
    return folder


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def silero_model() -> Path:
    """Silero VAD, from the input cache."""
    shop = Wiring(ROOT)
    return shop.store(shop.lock).unpack(SELFTEST_MODEL) / "silero_vad/data/silero_vad.onnx"


def write_silero_inputs(folder: Path) -> None:
    """Write the model's input tensors."""
    for item in silero_inputs():
        (folder / item.name).write_bytes(item.data)


def silero_arguments(folder: Path | str) -> list[str]:
    """What the smoke program is told of inputs that lie in ``folder``."""
    return [f"{item.argument}{folder}/{item.name}" for item in silero_inputs()]


def require_stock_numbers(said: Mapping[str, object], *, tolerance: float = 1e-4) -> None:
    """What the smoke program said of Silero's outputs is what the stock CPU build computes."""
    outputs = said["outputs"]
    assert isinstance(outputs, dict)
    for name, wanted in stock_outputs(silero_model(), silero_inputs()).items():
        assert outputs[name] == pytest.approx(wanted, abs=tolerance), name
