"""Tests on an NVIDIA GPU: the package that the client selects runs a model with the CPU's numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import (
    require_stock_numbers,
    silero_arguments,
    silero_model,
    write_silero_inputs,
)

pytestmark = pytest.mark.gpu

TOLERANCE = 1e-3
"""Absolute tolerance for TF32 and other orders of summation; silero's outputs lie in -1 … 1."""


@pytest.fixture(scope="module")
def installed(
    dist: Path, legacy_package: Path, modern_package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    assert invoke("client", "--dist", dist).returncode == 0
    argv: list[str | Path] = [sys.executable, dist / "ortpacks.pyz", "install", "--index", dist]
    argv += ["--prefix", prefix]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("CPU: "):
        pytest.skip(f"none of the two test packages runs here: {done.stdout.splitlines()[0]}")
    return prefix / "current"


def test_a_model_runs_on_the_gpu(installed: Path, dist: Path, tmp_path: Path) -> None:
    write_silero_inputs(tmp_path)
    smoke = dist / ".check-tools-assembled" / "tools" / "ortpacks-smoke"
    arguments = silero_arguments(tmp_path)
    argv: list[str | Path] = [smoke, installed / "lib/libonnxruntime.so.1", silero_model(), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=dict(os.environ))
    said = json.loads(done.stdout)
    assert said["provider"] == "cuda", said["cuda"]["message"]
    require_stock_numbers(said, tolerance=TOLERANCE)
