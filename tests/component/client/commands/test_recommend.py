"""Tests of recommend, by its table and by opening models in the installed package, and of gpu-info.json."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.client.trials import ort_calls
from tests.doubles import release as release_double
from tests.doubles.library import APPEND_CUDA, CREATE_SESSION, library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, Build, name_of, write_release

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


def machine_with(tmp_path: Path, host: bytes = FILES[HOST], *, vram: str = "8192") -> tuple[Machine, str]:
    env = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07", "ORTPACKS_FORCE_MEMORY": vram}
    machine = Machine(tmp_path / "home", env=env)
    index = str(write_release(tmp_path / "release", files={**FILES, HOST: host}))
    assert machine.run("install", "--index", index) == 0, machine.err
    return machine, index


def gpu_info(machine: Machine) -> dict[str, object]:
    value = json.loads((machine.prefix / "gpu-info.json").read_text())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(("vram", "wanted"), [("8192", "big"), ("4096", "small"), ("2048", "tiny")])
def test_the_table_decides_by_the_memory_there_is(tmp_path: Path, vram: str, wanted: str) -> None:
    machine, index = machine_with(tmp_path, vram=vram)
    said = machine.answer("recommend", "--index", index)
    assert (said["model"], said["tested"], said["attempts"]) == (wanted, False, [])


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
        ("--models", ["none.json"]),
        ("--models", ["latin.json"]),
        ("--models", ["empty.json"]),
        ("--try", ["huge=/no/such.onnx"]),
        ("--try", ["pi\npe.onnx"]),
        ("--try", ["."]),
        ("--try", ["model.onnx", "other.onnx"]),
    ],
)
def test_a_file_that_is_no_table_or_no_model_is_a_message(
    tmp_path: Path, told: Callable[[object], None], flag: str, words: list[str]
) -> None:
    machine, index = machine_with(tmp_path)
    for name in ("model.onnx", "other.onnx"):
        (tmp_path / name).write_bytes(ort_calls.model())
    (tmp_path / "latin.json").write_bytes(b"\xff")
    (tmp_path / "empty.json").write_bytes(b"{}")
    os.mkfifo(tmp_path / "pi\npe.onnx")
    given = (word if "=" in word else str(tmp_path / word) for word in words)
    assert machine.run("recommend", "--index", index, *(word for path in given for word in (flag, path))) == 2
    told(machine.err.strip())


def test_a_model_that_opens_is_tested(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    said = machine.answer("recommend", "--index", index, "--try", str(model))
    assert (said["model"], said["device"], said["tested"]) == ("big", "gpu", True)
    assert [(one["provider"], one["opens"]) for one in said["attempts"]] == [("cuda", True)]
    info = gpu_info(machine)
    assert (info["recommendedModel"], info["tested"], info["vramVerified"]) == ("big", True, True)


def test_one_that_fails_on_cuda_is_tried_on_the_cpu_and_the_next_size_is_said(
    tmp_path: Path, model: Path
) -> None:
    machine, index = machine_with(tmp_path)
    replace_host(machine, library("1.23.2", refuses=[CREATE_SESSION], why=CUDA_35))
    said = machine.answer("recommend", "--index", index, "--try", str(model))
    failure = "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
    assert [(one["model"], one["provider"], one["failure"]) for one in said["attempts"]] == [
        ("big", provider, failure) for provider in ("cuda", "cpu")
    ]
    assert (said["model"], said["tested"], gpu_info(machine)["tested"]) == ("small", False, False)


def test_a_model_that_misses_a_kernel_of_a_lean_package_says_so(tmp_path: Path, model: Path) -> None:
    machine = Machine(tmp_path / "home", env={"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_MEMORY": "8192"})
    why = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'n' ep:'CUDA'). Kernel not found"
    host = library("1.23.2", refuses=[CREATE_SESSION], why=why)
    lean = write_release(tmp_path / "lean", files={**FILES, HOST: host}, builds=(Build("lean"),))
    assert machine.run("install", "--index", str(lean)) == 0, machine.err
    assert machine.run("recommend", "--index", str(lean), "--try", str(model)) == 0
    named = f"{name_of('modern', build=Build('lean'))} has no kernel for com.microsoft.BiasGelu"
    assert f"{why} {named}: it was compiled with less than the full profile." in machine.out
    tried = machine.answer("recommend", "--index", str(lean), "--try", str(model))["attempts"]
    assert [str(one["cause"])[: len(named)] for one in tried] == [named, named]


def test_the_next_size_is_tried_where_its_file_is_given(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    replace_host(machine, library("1.23.2", crashes=[APPEND_CUDA]))
    files = [word for name in ("big", "small", "tiny") for word in ("--try", f"{name}={model}")]
    said = machine.answer("recommend", "--index", index, *files)
    assert [(one["model"], one["provider"], one["opens"]) for one in said["attempts"]] == [
        ("big", "cuda", False), ("big", "cpu", True),
        ("small", "cuda", False), ("small", "cpu", True),
        ("tiny", "cpu", True),
    ]  # fmt: skip
    assert (said["model"], said["device"], said["tested"]) == ("tiny", "cpu", True)
    assert gpu_info(machine)["vramVerified"] is False
    assert machine.run("recommend", "--index", index, *files) == 0
    assert "big on cuda: does not open: the process died of SIGILL" in machine.out


def test_where_nothing_can_be_tried_the_table_stands(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    machine.python = "/no/such/python"
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 0, machine.err
    assert "big on cuda: not tried: /no/such/python cannot be started" in machine.out
    assert "on cpu" not in machine.out, "nor is the CPU tried then"
    assert "\nbig: 8192 MiB" in machine.out
    assert gpu_info(machine)["tested"] is False


def replace_host(machine: Machine, content: bytes) -> None:
    """Replace the installed host library by one that fails, and its size and hash in the manifest.

    This stands for a machine that changed after the install; only packages that match their manifest are run.
    """
    folder = (machine.prefix / "current").resolve()
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["path"] == HOST:
            entry.update(release_double.digest(content))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / HOST).write_bytes(content)


def test_two_files_of_one_name_are_both_tried(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_double, "MODELS", ())
    machine, index = machine_with(tmp_path)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other/model.onnx"
    other.write_bytes(model.read_bytes())
    tried = machine.answer("recommend", "--index", index, "--try", str(model), "--try", str(other))[
        "attempts"
    ]
    assert [one["model"] for one in tried] == ["model.onnx", str(other)]


def test_a_damaged_package_is_not_run(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    (machine.lib / "libonnxruntime.so.1").write_bytes(library("1.23.2") + b"!")
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 7
    assert "Run install again" in machine.err


def test_nothing_is_tried_where_nothing_is_installed(tmp_path: Path, model: Path) -> None:
    machine = Machine(tmp_path / "home")
    index = str(write_release(tmp_path / "release"))
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 3


def test_gpu_info_says_what_install_found(tmp_path: Path, told: Callable[[object], None]) -> None:
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


def test_why_a_model_does_not_open_is_told_on_one_line(tmp_path: Path, model: Path) -> None:
    machine, index = machine_with(tmp_path)
    replace_host(machine, library("1.23.2", refuses=[CREATE_SESSION], why="node 'a\x1b[31m' has no input"))
    assert machine.run("recommend", "--index", index, "--try", str(model)) == 0, machine.err
    assert r"big on cuda: does not open: node 'a\x1b[31m' has no input" in machine.out
