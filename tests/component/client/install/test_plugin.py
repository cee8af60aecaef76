"""Tests of plug-in packages: which application gets one, and what the commands say of an installed one.

The plug-in is compiled here: a library with the two functions that ONNX Runtime looks for, and no device.
The stock wheel of this test environment registers it.
"""

import json
import shutil
import subprocess
from dataclasses import replace
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from builder.client.commands.doctor import answer_doctor
from builder.client.install.prefix import Prefix
from builder.client.trials.ort_calls import model as add
from tests.doubles.library import library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, PLUGINS, REPACKED, name_of, write_release

LIBRARY = "lib/libonnxruntime_providers_cuda.so"

STOCK = Path(str(distribution("onnxruntime").locate_file("")))

PLUGIN, PROVIDER = name_of("modern", "1.30.0", build=PLUGINS), name_of("modern", "1.30.0")


def compiled(folder: Path) -> bytes:
    """Return a plug-in without devices."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for a plug-in")
    source, target = folder / "plugin.c", folder / "plugin.so"
    source.write_text("void *CreateEpFactories() { return 0; }\nvoid *ReleaseEpFactory() { return 0; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, source], check=True)
    return target.read_bytes()


def written(folder: Path, plugin: bytes) -> str:
    """Write a release with a plug-in and a provider of each variant, and return its index."""
    contents = {**FILES, LIBRARY: plugin, HOST: library("1.30.0")}
    return str(write_release(folder, version="1.30.0", files=contents, builds=(REPACKED, PLUGINS)))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plugins")
    return written(folder / "release", compiled(folder))


def environment(folder: Path, name: str, version: str, *more: str) -> Path:
    """Write a Python environment with a distribution of ONNX Runtime, and return its folder."""
    site = folder / "lib/python3.11/site-packages"
    for path, text in {
        f"{name.replace('-', '_')}-{version}.dist-info/RECORD": "onnxruntime/__init__.py,,\n",
        "onnxruntime/__init__.py": "InferenceSession = None\n",
        **dict.fromkeys(more, ""),
    }.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return folder


OLD_HOST, GPU_WHEEL, CPU_WHEEL = "OLD", "GPU", "CPU"


@pytest.mark.parametrize(
    ("flags", "form", "words"),
    [
        ([], "provider", "the default"),
        (["--host", "1.32.0"], "plugin", "ONNX Runtime 1.32.0 (--host) registers it"),
        (["--host", "1.23.2"], "provider", "is too old: a plug-in needs ONNX Runtime 1.24.4 or newer"),
        (["--host", "1.24.4"], "plugin", "ONNX Runtime 1.24.4 (--host) registers it"),
        (["--host", "1.30.0.dev20260801"], "plugin", "registers it"),
        (["--host", "1.9.0"], "provider", "is too old"),
        (["--host", "none"], "provider", "there is no host"),
        (["--host", CPU_WHEEL], "plugin", "onnxruntime 1.31.1 in "),
        (["--host", GPU_WHEEL], "provider", "has a CUDA provider of its own"),
        (["--host", OLD_HOST], "provider", "ONNX Runtime 1.23.2 in "),
        (["--form", "plugin"], "plugin", "as asked with --form, though there is no host"),
        (["--form", "provider", "--host", "1.32.0"], "provider", "as asked with --form."),
        (["--variant", PLUGIN], "plugin", "only plug-ins are there to choose from"),
    ],
)
def test_the_form_fits_the_host(
    machine: Machine, tmp_path: Path, index: str, flags: list[str], form: str, words: str
) -> None:
    hosts = {
        OLD_HOST: tmp_path / "libonnxruntime.so.1",
        GPU_WHEEL: environment(tmp_path / "gpu", "onnxruntime-gpu", "1.31.1"),
        CPU_WHEEL: environment(tmp_path / "cpu", "onnxruntime", "1.31.1"),
    }
    hosts[OLD_HOST].write_bytes(library("1.23.2"))
    named = [str(hosts.get(flag, flag)) for flag in flags]
    answer = machine.answer("select", "--index", index, *named)
    assert (answer["form"]["form"], answer["package"]["form"]) == (form, form)
    assert words in answer["form"]["reason"]
    assert answer["package"]["name"] == (PLUGIN if form == "plugin" else PROVIDER)
    other = PROVIDER if form == "plugin" else PLUGIN
    assert any(item["package"] == other for item in answer["reasons"]) or "--variant" in flags
    assert answer["package"]["oldest_host"] == ("1.24.4" if form == "plugin" else None)
    assert any("BeamSearch" in note for note in answer["notes"]) == (form == "plugin")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--form", "plugin", "--host", "none"], 9, "a plug-in needs ONNX Runtime 1.24.4 or newer"),
        (["--form", "plugin", "--host", "1.24.3"], 9, "is too old"),
        (["--host", "./nowhere"], 2, "--host ./nowhere: a version"),
        (["--host", "/usr"], 2, "it has no onnxruntime"),
        (["--form", "other"], 2, "--form"),
    ],
)
def test_what_cannot_be(machine: Machine, index: str, flags: list[str], code: int, words: str) -> None:
    assert machine.run("select", "--index", index, *flags) == code, machine.out
    assert words in machine.err


@pytest.mark.parametrize("flags", [["--form", "plugin"], ["--host", "1.32.0"]])
def test_a_card_is_told_which_cards_plugins_are_for(machine: Machine, index: str, flags: list[str]) -> None:
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "9.0"}
    assert machine.run("select", "--index", index, *flags) == 0, machine.err
    assert machine.out.startswith("CPU:")
    assert f"{PLUGIN} runs on 7.5, 8.0, 8.6" in machine.out


def test_an_application_goes_from_a_provider_to_a_plugin_and_back(machine: Machine, index: str) -> None:
    assert machine.run("install", "--index", index) == 0, machine.err
    assert "ORT_DYLIB_PATH" in machine.answer("env")["variables"]
    answer = machine.answer("install", "--index", index, "--host", str(STOCK))
    assert answer["installed"]["loads"]
    assert f"{PROVIDER} (provider) is replaced by {PLUGIN} (plugin)" in answer["installed"]["upgrade"]
    variables = machine.answer("env")["variables"]
    assert Path(variables.pop("ORTPACKS_EP_LIBRARY")).samefile(machine.prefix / "current" / LIBRARY)
    assert variables == {"ORTPACKS_EP_NAME": "CUDAExecutionProvider", "LD_LIBRARY_PATH": str(machine.lib)}
    info = json.loads((machine.prefix / "current/gpu-package-info.json").read_text())
    assert (info["plugin"]["library"], info["architectures"]) == (LIBRARY, ["sm_75", "sm_80", "sm_86"])
    assert machine.run("verify") == 0, machine.out
    roles = {item["role"]: item["form"] for item in machine.answer("list", "--installed")["installed"]}
    assert roles == {"current": "plugin", "previous": "provider"}
    assert machine.run("rollback", "--yes") == 0, machine.err
    assert "ORT_DYLIB_PATH" in machine.answer("env")["variables"]
    assert machine.run("verify") == 0, machine.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", str(STOCK)], f"ONNX Runtime {version('onnxruntime')} registers it."),
        (["--host", "1.32.0"], "Its libraries load here. No host registered it"),
    ],
)
def test_it_is_tried_out_in_its_host(machine: Machine, index: str, flags: list[str], words: str) -> None:
    assert machine.run("install", "--index", index, *flags) == 0, machine.err
    assert words in machine.out


@pytest.mark.parametrize("host", [str(STOCK), "1.32.0"])
def test_a_plugin_that_does_not_load_is_not_switched_to(machine: Machine, tmp_path: Path, host: str) -> None:
    index = written(tmp_path / "release", library("", needs_glibc="9.99"))
    assert machine.run("install", "--index", index, "--host", host) == 12, machine.out
    assert "needs GLIBC_9.99 or newer" in machine.err
    assert not (machine.prefix / "current").exists()


def codes(machine: Machine, **about: object) -> dict[str, str]:
    answer = answer_doctor(machine.context(), Prefix(machine.prefix), **about)  # type: ignore[arg-type]
    findings = answer.value["findings"]
    assert isinstance(findings, list)
    return {item["code"]: item["seen"] for item in findings}


def test_doctor_registers_it_in_the_applications_host(machine: Machine, tmp_path: Path, index: str) -> None:
    assert machine.run("install", "--index", index, "--form", "plugin") == 0, machine.err
    here, wheel = replace(machine, environments=(STOCK,)), "onnxruntime_ep_cuda12-0.4.0.dist-info/RECORD"
    assert not {"D301", "D303", "D312", "D313", "D314", "D315"} & set(codes(here))
    trial = here.answer("doctor")["trial"]
    assert (trial["failure"], trial["registered_by"].split()[0]) == (None, "onnxruntime")
    both = environment(tmp_path / "gpu", "onnxruntime-gpu", "1.31.1", wheel)
    assert "onnxruntime-ep-cuda12" in codes(here, look_in=[both])["D313"]
    old = environment(tmp_path / "old", "onnxruntime", "1.23.2")
    assert "1.23.2" in codes(replace(machine, environments=(old,)))["D314"]
    assert "D316" in codes(here, said="'CUDAExecutionProvider' is not in available provider names")
    (tmp_path / "p/lib").mkdir(parents=True)
    (tmp_path / "p/manifest.json").write_text("{}")
    (tmp_path / "p/lib/libonnxruntime.so.1").write_bytes(library("1.30.0"))
    env = {**here.env, "ORT_DYLIB_PATH": str(tmp_path / "p/lib/libonnxruntime.so.1")}
    assert "D315" in codes(replace(here, env=env))


@pytest.mark.parametrize("command", ["doctor", "recommend"])
def test_no_model_is_opened_in_it(machine: Machine, tmp_path: Path, index: str, command: str) -> None:
    assert machine.run("install", "--index", index, "--host", str(STOCK)) == 0, machine.err
    assert "D314" not in codes(machine), "the host that it was installed for is known"
    (tmp_path / "m.onnx").write_bytes(add())
    named = ["--index", index] if command == "recommend" else []
    assert machine.run(command, *named, "--try", str(tmp_path / "m.onnx")) == 3
    assert "is a plug-in" in machine.err
