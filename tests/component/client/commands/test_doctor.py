"""Tests of whole doctor runs: with a stand-in for the driver, and as the one file on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.client.cli import FORMAT
from builder.client.commands import doctor
from builder.client.commands.doctor import answer_doctor
from builder.client.context import CommandAnswer
from builder.client.doctor.observations import SessionTrial
from builder.client.install.current import folder_in_use
from builder.client.install.prefix import Prefix
from builder.client.trials import ort_calls
from builder.client.trials.try_out import OrtTrials, TryOut
from tests.component.client.commands.hosts import put, real_host
from tests.doubles.gpus import library, machine
from tests.doubles.library import CREATE_SESSION
from tests.doubles.library import library as host_library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, Build, digest, write_release
from tests.support.schemas import schema

Written = dict[str, Any]

REFUSES = host_library(
    "1.23.2",
    refuses=[8],
    why="CUDA failure 209: no kernel image is available for execution on the device ; GPU=0",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return libraries of driver 570.133.07 with an H200 and a Quadro M2200."""
    folder = tmp_path_factory.mktemp("driver")
    return {"cuda": library(folder, "libcuda"), "nvml": library(folder, "nvml")}


@pytest.fixture
def home(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home", platform="linux-x64")


def install(home: Machine, folder: Path, host: bytes = FILES[HOST]) -> Path:
    """Install the package for 7.5 to 8.6 and return its folder."""
    index = write_release(folder, files={**FILES, HOST: host})
    assert home.run("install", "--index", str(index)) == 0, home.err
    installed = folder_in_use(Prefix(home.prefix))
    assert installed is not None
    return installed


def manifest_in(folder: Path) -> Written:
    manifest: Written = json.loads((folder / "manifest.json").read_text())
    return manifest


def examined(home: Machine, root: Path, driver: dict[str, str] | None = None, **env: str) -> CommandAnswer:
    around = machine(root, env=env, **(driver or {}))  # type: ignore[arg-type]
    context = replace(home.context(), surroundings=lambda: around)
    return answer_doctor(context, Prefix(home.prefix))


def require_schema(answer: CommandAnswer) -> None:
    """Raise for an answer that, below its head, does not follow the schema."""
    whole = {"format": FORMAT, "command": "doctor", **answer.value}
    schema("client").validate(json.loads(json.dumps(whole)))


def codes(answer: CommandAnswer) -> list[str]:
    findings = answer.value["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings]


def test_two_gpus_and_no_package(home: Machine, tmp_path: Path, driver: dict[str, str]) -> None:
    answer = examined(home, tmp_path / "root", driver)
    assert (codes(answer), answer.code) == (["D207", "D201"], 0)
    assert "Quadro M2200 (5.2) is here." in answer.lines[0]
    assert "  driver 570.133.07, CUDA 12.8" in answer.lines
    assert any(line.startswith("  libcuda: found: CUDA 12.9, 2 listed") for line in answer.lines)


def test_the_wrong_package_for_both_gpus(home: Machine, tmp_path: Path, driver: dict[str, str]) -> None:
    install(home, tmp_path / "release", REFUSES)
    answer = examined(home, tmp_path / "root", driver)
    assert (codes(answer), answer.code) == (["D022", "D204", "D402", "D207"], 6)
    text = "\n".join(answer.lines)
    assert "NVIDIA H200 (9.0), Quadro M2200 (5.2)" in text
    assert (
        "a session of one node does not run on cuda, on cpu it does not run either: CUDA failure 209" in text
    )


FULL = ["D033", "D204", "D207"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            "CUDA failure 500: named symbol not found ; GPU=0 ; hostname=x",
            ["D026", "D204", "D207"],
        ),
        ("CUDA error cudaErrorNoKernelImageForDevice:no kernel image is available", ["D022", "D204", "D207"]),
        ("libcudnn.so.9: cannot open shared object file", ["D204", "D405", "D207"]),
        # microsoft/onnxruntime#22702, #23121, cudnn_graph.h 9.10.2; a kernel's own failure has the name only
        ("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 458", FULL),
        ("Available memory of 0 is smaller than requested bytes of 2048", FULL),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=x", FULL),
        ("CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0", FULL),
        ("CUDA error cudaErrorMemoryAllocation:out of memory", FULL),
    ],
)
def test_an_applications_error_is_explained_and_nothing_is_read_or_run(
    home: Machine, tmp_path: Path, driver: dict[str, str], said: str, wanted: list[str]
) -> None:
    folder = install(home, tmp_path / "release")
    (folder / HOST).write_bytes(b"damaged, which nobody looks at")
    around = machine(tmp_path / "root", env={}, **driver)  # type: ignore[arg-type]
    context = replace(home.context(), surroundings=lambda: around)
    answer = answer_doctor(context, Prefix(home.prefix), said=said)
    assert (codes(answer), answer.code) == (wanted, 6)


def test_an_error_of_an_application_may_hold_controls(home: Machine) -> None:
    assert home.run("doctor", "--said", "a\x1b[31mb\nc") == 6
    assert "\x1b" not in home.out


def test_cuda_fails_and_nvml_works(home: Machine, tmp_path: Path, driver: dict[str, str]) -> None:
    answer = examined(home, tmp_path / "root", driver, FAKE_CUDA="803")
    assert (codes(answer)[0], answer.code) == ("D024", 6)
    assert answer.lines[0].startswith("D024 error: The driver lists 2 GPU(s). CUDA fails: ")


CARD = {"vendor": "0x10de", "class": "0x030000", "device": "0x1b80"}
"""Files of a GTX 1080 in sysfs."""

CARDS = {f"sys/bus/pci/devices/0000:01:00.0/{name}": f"{value}\n" for name, value in CARD.items()}

MODULE = {"sys/module/nvidia/version": "570.133.07\n"}


@pytest.mark.parametrize(
    ("files", "env", "code"),
    [
        ({**CARDS, **MODULE, ".dockerenv": ""}, {}, "D101"),
        ({**MODULE, "dev/nvidiactl": ""}, {}, "D007"),
        ({**CARDS, "usr/lib/x86_64-linux-gnu/libcuda.so.590.44.01": ""}, {}, "D010"),
        ({}, {"ORTPACKS_FORCE_CC": "8.6"}, "D004"),
    ],
    ids=["docker without --gpus", "a device file of a group", "driver 590 by its library", "stated GPUs"],
)
def test_a_machine_is_known_by_its_files_and_variables(
    home: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    env: dict[str, str],
    code: str,
) -> None:
    for name, text in files.items():
        put(tmp_path / "root" / name, text.encode())
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may do anything
    assert codes(examined(home, tmp_path / "root", None, **env)) == [code, "D201"]


def test_a_transformer_in_a_lean_package(
    home: Machine,
    tmp_path: Path,
    driver: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model of one node runs, the user's model does not open.

    The trial of one node comes first, because its longer time limit allows for a cold start.
    """
    asked = recorded_trials(monkeypatch)
    why = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'n' ep:'CUDA'). Kernel not found"
    host = host_library("1.23.2", refuses=[CREATE_SESSION], why=why)
    index = write_release(tmp_path / "release", files={**FILES, HOST: host}, builds=(Build("lean"),))
    assert home.run("install", "--index", str(index)) == 0, home.err
    model = put(tmp_path / "minilm.onnx", ort_calls.model())
    around = machine(tmp_path / "root", **driver)  # type: ignore[arg-type]
    context = replace(home.context(), surroundings=lambda: around)
    answer = answer_doctor(context, Prefix(home.prefix), models=(str(model),))
    assert {"D211", "D404"} <= set(codes(answer))
    text = "\n".join(answer.lines)
    assert f"D404 error: {model} does not open with cuda: {why}." in text
    assert "-lean-linux-x64 has no kernel for com.microsoft.BiasGelu" in text
    assert f"  {model} does not open with cuda" in answer.lines
    require_schema(answer)
    assert asked == ["compute", "open"]


def recorded_trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the trials that doctor asks for, in order, in the returned list."""
    asked: list[str] = []
    compute, opened = OrtTrials.compute, OrtTrials.open

    def computes(trials: OrtTrials, host: Path, provider: str) -> SessionTrial:
        asked.append("compute")
        return compute(trials, host, provider)

    def opens(trials: OrtTrials, host: Path, provider: str, model: Path) -> TryOut:
        asked.append("open")
        return opened(trials, host, provider, model)

    monkeypatch.setattr(OrtTrials, "compute", computes)
    monkeypatch.setattr(OrtTrials, "open", opens)
    return asked


@pytest.mark.parametrize(
    ("flag", "word", "code"),
    [
        ("--try", "none.onnx", 2),
        ("--try", "text.onnx", 2),
        ("--try", "model.onnx", 3),
        ("--said", " \n", 2),
    ],
)
def test_a_model_and_a_text_for_doctor_have_to_be_there_and_so_has_a_package(
    home: Machine, tmp_path: Path, told: Callable[[object], None], flag: str, word: str, code: int
) -> None:
    put(tmp_path / "text.onnx", b"no model")
    put(tmp_path / "model.onnx", ort_calls.model())
    assert home.run("doctor", flag, str(tmp_path / word) if flag == "--try" else word) == code
    told(home.err.strip())


def test_a_damaged_file_and_no_session_with_it(home: Machine, tmp_path: Path) -> None:
    folder = install(home, tmp_path / "release")
    (folder / "LICENSE").write_text("changed")
    answer = examined(home, tmp_path / "root")
    assert codes(answer) == ["D203", "D003"]
    assert answer.value["trial"] is None
    assert "LICENSE" in answer.lines[0]


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "dangling": lambda folder, prefix: shutil.rmtree(folder),
    "no manifest": lambda folder, prefix: (folder / "manifest.json").unlink(),
    "manifest": lambda folder, prefix: put(folder / "manifest.json", b'{"format": 3, "name": "\xff'),
    "no info": lambda folder, prefix: (folder / "gpu-package-info.json").unlink(),
    "a loop": lambda folder, prefix: (prefix / "loop").symlink_to("current"),
    "current.txt": lambda folder, prefix: put(prefix / "current.txt", b"versions/gone-0123456789ab\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_package_that_cannot_be_read_is_a_finding(home: Machine, tmp_path: Path, damage: str) -> None:
    DAMAGES[damage](install(home, tmp_path / "release"), home.prefix)
    if damage == "a loop":
        (home.prefix / "loop").replace(home.prefix / "current")
    answer = examined(home, tmp_path / "root")
    assert (codes(answer), answer.code) == (["D202", "D003"], 6)


def rewrite(folder: Path, **changes: object) -> None:
    """Change keys of an installed package's manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))


def test_a_package_that_runs(home: Machine, tmp_path: Path) -> None:
    """The host library is the stock CPU wheel's; without a GPU the package runs on the CPU."""
    folder, content = install(home, tmp_path / "release"), real_host().read_bytes()
    (folder / HOST).write_bytes(content)
    listed = manifest_in(folder)["files"]
    rewrite(folder, files=[{**file, **(digest(content) if file["path"] == HOST else {})} for file in listed])
    answer = examined(home, tmp_path / "root")
    assert (codes(answer), answer.code) == (["D003"], 0)
    assert answer.lines[0] == "Nothing is wrong."
    assert "  a session of one node ran on cpu" in answer.lines


def test_a_package_without_a_host_library_is_not_tried(home: Machine, tmp_path: Path) -> None:
    folder = install(home, tmp_path / "release")
    (folder / HOST).unlink()
    rewrite(folder, files=[file for file in manifest_in(folder)["files"] if file["path"] != HOST])
    answer = examined(home, tmp_path / "root")
    assert (codes(answer), answer.value["trial"]) == (["D003"], None)


def test_a_package_of_another_provider_needs_no_cuda_to_be_tried(home: Machine, tmp_path: Path) -> None:
    none = dict.fromkeys(("cuda", "cudnn", "driver"))
    rewrite(install(home, tmp_path / "release"), provider="coreml", sm=[], capabilities={}, **none)
    trial = examined(home, tmp_path / "root").value["trial"]
    assert isinstance(trial, dict)
    assert trial["provider"] == "coreml"


def test_what_stands_between_the_package_and_an_application(
    home: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(home, tmp_path / "release")
    other = put(tmp_path / "other/libonnxruntime.so.1", b"x")
    home.environments = (tmp_path / "site",)
    for name in ("onnxruntime-1.20.1", "onnxruntime_gpu-1.20.1"):
        put(tmp_path / "site" / f"{name}.dist-info/METADATA")
    folder = folder_in_use(Prefix(home.prefix))
    monkeypatch.setattr(doctor, "mounted_noexec", lambda path: path == folder)
    env = {"LD_LIBRARY_PATH": str(other.parent), "ORT_DYLIB_PATH": str(other)}
    answer = examined(home, tmp_path / "root", None, **env)
    assert {"D301", "D302", "D303", "D304", "D307", "D403"} <= set(codes(answer))
    assert "D308" not in codes(answer)
    home.platform = "macos-arm64"
    assert "D302" not in codes(examined(home, tmp_path / "root", None, **env)), "only Linux searches it"
    home.platform = "linux-x64"
    inside = examined(home, tmp_path / "root", ORT_DYLIB_PATH=str(home.lib / "libonnxruntime.so.1"))
    assert "D301" not in codes(inside)


@pytest.mark.parametrize(("env", "place"), [({"TMPDIR": "/var/tmp"}, "/var/tmp"), ({}, "/tmp")])
def test_temporary_files_on_noexec(
    home: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], place: str
) -> None:
    monkeypatch.setattr(doctor, "mounted_noexec", lambda path: path == Path(place))
    assert "D308" in codes(examined(home, tmp_path / "root", None, **env))


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"CUDA_CACHE_DISABLE": "1"}, "CUDA_CACHE_DISABLE=1"),
        ({"CUDA_CACHE_MAXSIZE": "268435456"}, "CUDA_CACHE_MAXSIZE=268435456"),
        ({"CUDA_CACHE_PATH": "/proc/none"}, "/proc/none"),
        ({"HOME": "/proc/none"}, "/proc/none/.nv/ComputeCache"),
        ({"CUDA_CACHE_MAXSIZE": "4294967296", "CUDA_CACHE_PATH": "/tmp"}, None),
        ({"CUDA_CACHE_MAXSIZE": "much", "CUDA_CACHE_PATH": "/tmp"}, None),
        ({}, None),
    ],
)
def test_the_cache_of_a_package_that_is_compiled_just_in_time(
    home: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: dict[str, str],
    env: dict[str, str],
    told: str | None,
) -> None:
    folder = install(home, tmp_path / "release")
    rewrite(folder, capabilities={**manifest_in(folder)["capabilities"], "9.0": "jit"})
    monkeypatch.setattr(doctor, "is_writable", lambda folder: str(folder) == "/tmp")
    answer = examined(home, tmp_path / "root", driver, **env)
    seen = [line for line in answer.lines if line.startswith("D309")]
    assert [told in line for line in seen] == [True] if told else seen == []


def test_the_one_file_examines_this_machine(pyz: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(pyz), "doctor"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode in {0, 6}) == ("", True)
    assert "D201 note: No package is installed." in done.stdout
    assert "  libcuda: " in done.stdout


def test_json_of_a_package_in_use_holds_the_schema(
    home: Machine, tmp_path: Path, driver: dict[str, str]
) -> None:
    install(home, tmp_path / "release", REFUSES)
    require_schema(examined(home, tmp_path / "root", driver))
    assert home.run("doctor", "--json") == 6
    answer = json.loads(home.out)
    schema("client").validate(answer)
    assert answer["trial"]["provider"] == "cpu"
    assert home.run("doctor") == 6
    assert "means: " in home.out


def test_words_without_end_are_read_in_seconds(home: Machine) -> None:
    """Defect: a search for a file name longer than the limit of 255 characters took minutes."""
    began = time.process_time()
    home.run("doctor", "--said", "9" * 100_000)
    assert time.process_time() - began < 5
