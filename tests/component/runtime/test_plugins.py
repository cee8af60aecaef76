"""Tests of plug-ins under a stock host: a double in C is registered and runs on GPUs made below /sys."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
from ortpacks_runtime import ProviderError, libraries, open_session, plugins, register
from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_runtime.settings import settings

from tests.answers.card import needs_compiler
from tests.doubles.plugin import ENTRY, Machine, described
from tests.support.tables import data_text

pytestmark = needs_compiler

MODERN, LEGACY = described("p-modern", {"8.6": "native"}), described("p-legacy", {"5.2": "native"})
TOO_NEW = described("p-new", {"8.6": "native"}, "99.0.0")


@pytest.fixture
def machine(tmp_path: Path, pyz: Path) -> Machine:
    folder = tmp_path / "Jörg Müller"
    folder.mkdir()
    return Machine(folder, pyz)


def test_the_plugin_that_has_code_for_the_card_is_registered_and_runs(machine: Machine) -> None:
    """Eight threads register it once, nothing is written beside it, and the fork says why it cannot."""
    machine.install(MODERN, LEGACY)
    before = sorted(machine.folder.rglob("*"))
    said = machine.runs("8.6", threads=8)
    assert (said["package"], said["reasons"], said["devices"], said["same"]) == ("p-modern", [], 1, True)
    assert (said["session"], said["nodes"]) == (["cuda", "p-modern"], {"CUDAExecutionProvider": 1})
    assert (said["product"], said["tf32"]) == ([[18, 18], [18, 18]], "1")
    assert "forked" in said["forked"][0]
    assert sorted(machine.folder.rglob("*")) == before


CLIENT = data_text("programs/client-of-many-cards.txt")


def with_uuids(machine: Machine) -> Machine:
    """Return the machine with a client whose GPUs are GPU-0, GPU-1 …; it installs what is in later."""
    client = machine.folder / "client.py"
    client.write_text(CLIENT)
    return Machine(machine.folder, client)


@pytest.mark.parametrize(
    ("device", "package"), [(0, "p-legacy"), (1, "p-modern"), ("GPU-0", "p-legacy"), ("GPU-1", "p-modern")]
)
def test_each_card_of_a_machine_has_its_plugin(machine: Machine, device: int | str, package: str) -> None:
    there = with_uuids(machine)
    cards = {"5.2": "none", "8.6": "none"}
    there.install(
        described("p-modern", {**cards, "8.6": "native"}), described("p-legacy", {**cards, "5.2": "native"})
    )
    said = there.runs("5.2,8.6", device=device)
    assert (said["package"], said["devices"], said["session"]) == ("p-legacy", 1, ["cuda", package])


def test_an_image_s_plugin_is_registered_where_nothing_is_installed(machine: Machine) -> None:
    machine.install(MODERN)
    place = machine.folder / "opt"
    (machine.folder / "ortpacks/versions/p-modern").rename(place)
    (machine.folder / "ortpacks/current").unlink()
    assert machine.runs("8.6")["package"] == ""
    said = machine.runs("8.6", named=place / ENTRY.library)
    assert (said["package"], said["session"]) == ("p-modern", ["cuda", "p-modern"])
    said = machine.runs("none", named=place / ENTRY.library)
    assert said["session"][0] == "cpu"
    assert "no NVIDIA GPU was found for the plug-in" in said["refused"]


@pytest.mark.parametrize(
    ("cards", "packages", "reasons"),
    [
        ("none", [MODERN], ["no NVIDIA GPU was found"]),
        ("8.6", [], ["ortpacks install"]),
        ("12.0", [MODERN, LEGACY], ["p-modern has no code for", "p-legacy has no code for"]),
        ("8.6", [TOO_NEW], ["p-new needs ONNX Runtime 99.0.0 or newer", "pip install"]),
    ],
    ids=["no GPU", "nothing installed", "for other cards", "an old host"],
)
def test_what_cannot_be_registered_is_a_reason_and_the_session_is_on_the_cpu(
    machine: Machine, cards: str, packages: list[Any], reasons: list[str]
) -> None:
    machine.install(*packages)
    said = machine.runs(cards)
    assert (said["devices"], said["session"][0]) == (0, "cpu")
    assert all(part in said["reasons"][0] for part in reasons), said["reasons"]
    assert all(one.name in said["refused"] for one in packages if cards != "none")
    assert ("no plug-in is installed" in said["refused"]) == (not packages)


def test_a_plugin_that_the_application_registered_stays_the_only_one(machine: Machine) -> None:
    machine.install(MODERN, LEGACY)
    own = str(machine.folder / "ortpacks/versions/p-legacy" / ENTRY.library)
    said = machine.runs("8.6", first=[own])
    assert (said["devices"], said["session"][0]) == (0, "cpu")
    assert f"{own} is registered in this process already" in said["reasons"][0]


def test_a_plugin_is_downloaded_where_that_is_told_else_the_one_that_fits_is_named(machine: Machine) -> None:
    there = with_uuids(machine)
    there.install(described("p-old", {"5.2": "native", "8.6": "none"}))
    assert "p-old has no code for a card" in (said := there.runs("8.6")["reasons"][0])
    assert "; p-fits fits: ortpacks install --form plugin --host " in said
    there.install(MODERN)
    (machine.folder / "ortpacks").rename(machine.folder / "later")
    assert there.runs("8.6")["package"] == ""
    assert there.runs("8.6", download=True)["package"] == "p-modern"


def test_a_host_that_registers_nothing_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnxruntime, "register_execution_provider_library")
    done = register()
    assert (done.devices, "pip install" in done.reasons[0]) == ((), True)


@pytest.mark.parametrize("driver", ["nothing, unless there is a GPU", ""])
def test_an_image_s_plugin_without_a_gpu_looks_for_the_driver(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setenv("ORTPACKS_EP_LIBRARY", "/opt/ortpacks/lib/libonnxruntime_providers_cuda.so")
    for name, value in {"takes_plugins": True, "devices": [], "without_driver": driver}.items():
        monkeypatch.setattr(plugins, name, lambda value=value: value)
    with pytest.raises(ProviderError, match="no NVIDIA GPU was found") as error:
        plugins.place_of(settings({}))
    assert error.value.do == (
        driver or "let this process see a GPU (CUDA_VISIBLE_DEVICES; in a container --gpus all)"
    )


def test_a_model_s_bytes_open_as_its_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTPACKS_CLIENT", "/no/such/ortpacks.pyz")
    session = open_session(ONE_NODE, "cpu")
    assert (session.report.provider, session.report.model) == ("cpu", f"{len(ONE_NODE)} bytes")
    with pytest.raises(ProviderError):
        open_session(ONE_NODE, "cuda", strict=True)


@pytest.mark.parametrize(
    ("files", "listed", "registered", "own"),
    [
        ([], ["CPUExecutionProvider"], [], False),
        (["libonnxruntime_providers_cuda.so"], ["CPUExecutionProvider"], [], True),
        ([], ["CUDAExecutionProvider", "CPUExecutionProvider"], [], True),
        ([], ["CUDAExecutionProvider", "CPUExecutionProvider"], ["CUDAExecutionProvider"], False),
        ([], ["CUDAExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"], True),
    ],
    ids=["stock", "beside it", "in an image", "a plug-in is listed", "the CPU's device"],
)
def test_a_host_has_its_own_cuda_wherever_its_provider_lies(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: list[str],
    listed: list[str],
    registered: list[str],
    own: bool,
) -> None:
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(libraries, "_capi", lambda: tmp_path)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    devices = [SimpleNamespace(ep_name=name) for name in registered]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: devices)
    assert libraries.has_own_cuda() == own


CUDART = """\
int cudaSetDevice(int device) { return device == 1 ? 101 : 0; }
int cudaFree(void *nothing) { return nothing ? 1 : 2; }
const char *cudaGetErrorString(int code) { return code == 2 ? "out of memory" : "invalid device ordinal"; }
"""


def test_cuda_itself_says_why_it_cannot_use_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = str(tmp_path / "libcudart.so.12")
    argv = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
    subprocess.run(argv, input=CUDART, text=True, check=True)
    monkeypatch.setattr(libraries, "loaded_libraries", lambda: ("/lib/libonnxruntime.so.1", library))
    said = [libraries.cuda_failure(ordinal) for ordinal in (0, 1)]
    assert said == ["CUDA failure 2: out of memory", "CUDA failure 101: invalid device ordinal"]
    monkeypatch.setattr(libraries, "loaded_libraries", lambda: ())
    assert libraries.cuda_failure(0) == ""
