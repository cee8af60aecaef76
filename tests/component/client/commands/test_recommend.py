"""Tests of recommend, by its table and by opening models in the installed package, and of gpu-info.json."""

import json
import os
import shutil
from pathlib import Path

import pytest

from builder.client.trials import ort_calls
from tests.doubles import release as release_double
from tests.doubles.library import APPEND_CUDA, CREATE_SESSION, library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, REPACKED, Build, replace_host, write_release
from tests.support.messages import Told

CUDA_35 = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:129 CUDA failure 35: CUDA driver version "
    "is insufficient for CUDA runtime version ; GPU=-1 ; hostname=vm ; expr=cudaSetDevice(info_.device_id);"
)

TABLE = [
    {"model": "big", "device": "gpu", "vram_mib": 6000, "cores": 0, "ram_gib": 0},
    {"model": "small", "device": "gpu", "vram_mib": 3500, "cores": 0, "ram_gib": 0},
    {"model": "tiny", "device": "cpu", "vram_mib": 0, "cores": 0, "ram_gib": 0},
]


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_double, "MODELS", TABLE)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(ort_calls.model())
    return tmp_path / "model.onnx"


def machine_with(tmp_path: Path, build: Build = REPACKED) -> tuple[Machine, str]:
    machine = Machine(tmp_path / "home")
    machine.env = {**machine.env, "ORTPACKS_FORCE_MEMORY": "8192"}
    index = str(write_release(tmp_path / "release", builds=(build,)))
    assert machine.run("install", "--index", index) == 0, machine.err
    return machine, index


def gpu_info(machine: Machine) -> dict[str, object]:
    value = json.loads((machine.prefix / "gpu-info.json").read_text())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_an_application_s_own_table_counts_instead_of_the_releases(tmp_path: Path, encoding: str) -> None:
    own = tmp_path / "models.json"
    table = json.dumps({"models": [{"model": "mine", "device": "gpu", "vram_mib": 8000}]})
    own.write_text(table, encoding=encoding)
    machine, index = machine_with(tmp_path)
    assert machine.answer("recommend", "--index", index, "--models", str(own))["model"] == "mine"
    assert machine.run("install", "--index", index, "--models", str(own)) == 0, machine.err
    assert gpu_info(machine)["recommendedModel"] == "mine"
    machine.env = {**machine.env, "ORTPACKS_FORCE_MEMORY": "7999"}
    assert machine.answer("recommend", "--index", index, "--models", str(own))["model"] is None


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--models", ["latin.json"]),
        ("--models", ["empty.json"]),
        ("--try", ["huge=/no/such.onnx"]),
        ("--try", ["pi\npe.onnx"]),
        ("--try", ["."]),
        ("--try", ["model.onnx", "other.onnx"]),
    ],
)
def test_no_model_is_a_message(tmp_path: Path, told: Told, flag: str, words: list[str]) -> None:
    machine, index = machine_with(tmp_path)
    for name in ("model.onnx", "other.onnx"):
        (tmp_path / name).write_bytes(ort_calls.model())
    (tmp_path / "latin.json").write_bytes(b"\xff")
    (tmp_path / "empty.json").write_bytes(b"{}")
    os.mkfifo(tmp_path / "pi\npe.onnx")
    given = (word if "=" in word else str(tmp_path / word) for word in words)
    assert machine.run("recommend", "--index", index, *(word for path in given for word in (flag, path))) == 2
    told(machine.err.strip())


NO_KERNEL = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'n' ep:'CUDA'). Kernel not found"

TRIALS: dict[str, tuple[bytes, Build, tuple[str, ...]]] = {
    "it opens": (FILES[HOST], REPACKED, ("",)),
    "it fails": (library("1.23.2", refuses=[CREATE_SESSION], why=CUDA_35), REPACKED, ("",)),
    "a lean package": (library("1.23.2", refuses=[CREATE_SESSION], why=NO_KERNEL), Build("lean"), ("",)),
    "each size": (library("1.23.2", crashes=[APPEND_CUDA]), REPACKED, ("big=", "small=", "tiny=")),
    "nothing can be tried": (b"", REPACKED, ("",)),
}
"""The host library (none: no Python that could load it), the build, and the sizes that the file is for."""


@pytest.mark.parametrize("name", TRIALS)
def test_a_model_is_tried(tmp_path: Path, model: Path, told: Told, name: str) -> None:
    """One that fails on CUDA is tried on the CPU, and then the next size."""
    host, build, sizes = TRIALS[name]
    machine, index = machine_with(tmp_path, build)
    if host:
        replace_host(machine.lib.parent, host)
    else:
        machine.python = "/no/such/python"
    argv = ("recommend", "--index", index, *(word for size in sizes for word in ("--try", f"{size}{model}")))
    assert machine.run(*argv) == 0, machine.err
    told(machine.out)
    told(json.dumps([one["cause"] for one in machine.answer(*argv)["attempts"]]))
    told(json.dumps(gpu_info(machine), indent=2))


def test_two_of_one_name_are_tried(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_double, "MODELS", ())
    machine, index = machine_with(tmp_path)
    (tmp_path / "other").mkdir()
    other = shutil.copy(model, tmp_path / "other")
    said = machine.answer("recommend", "--index", index, "--try", str(model), "--try", str(other))
    assert [one["model"] for one in said["attempts"]] == ["model.onnx", str(other)]


def test_a_damaged_package_is_not_run_and_none_is_no_package(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    (machine.lib / "libonnxruntime.so.1").write_bytes(library("1.23.2") + b"!")
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 7
    assert "Run install again" in machine.err
    assert machine.run("uninstall") == 0, machine.err
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 3


def test_gpu_info_says_what_install_found(tmp_path: Path, told: Told) -> None:
    machine, _ = machine_with(tmp_path)
    told(json.dumps(gpu_info(machine), indent=2))
    machine.env = {"ORTPACKS_FORCE_CC": "none"}
    assert machine.run("install", "--index", str(tmp_path / "release")) == 0
    told(json.dumps(gpu_info(machine), indent=2))


def test_a_cpu_answer_stands_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    machine = Machine(tmp_path / "home", env={"ORTPACKS_FORCE_CC": "none"})
    argv = ["--prefix", str(tmp_path / "file" / "prefix")]
    assert machine.run("install", "--index", str(write_release(tmp_path / "release")), *argv) == 0
    assert "gpu-info.json: not written" in machine.err
