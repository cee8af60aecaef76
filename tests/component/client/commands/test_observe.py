"""Tests of doctor's observations: a system's files, foreign libraries, Python environments, a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from builder.client.commands.doctor import distributions, mounted_noexec, shadows
from builder.client.doctor.observations import ABSENT, FORBIDDEN, THERE, Distribution, Kernel, PciCard, Shadow
from builder.client.probe.processes import ProcessAnswer, asker
from builder.client.probe.system import driver_on_disk, read_kernel
from builder.client.trials import ort_calls
from builder.client.trials.try_out import OrtTrials
from builder.files.disk import is_writable
from builder.formats.manifest import FileEntry, Manifest, loads
from tests.component.client.commands.hosts import pci, put, real_host
from tests.doubles.library import CREATE_SESSION, library
from tests.doubles.release import FILES, manifest_of

TRIALS = OrtTrials(asker({}), sys.executable)


def test_cards_are_nvidias_display_devices(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:02.0", "0x8086", "0x030000", "0x9a49", "i915")
    pci(tmp_path, "0000:01:00.0", "0x10de", "0x030000", "0x1b80", "nvidia")
    pci(tmp_path, "0000:01:00.1", "0x10de", "0x040300", "0x10f0", "snd_hda_intel")
    pci(tmp_path, "0000:02:00.0", "0x10de", "0x030200", "0x20b0")
    put(tmp_path / "sys/bus/pci/devices/0000:03:00.0/vendor", b"what?\n")
    put(tmp_path / "sys/bus/pci/devices/0000:04:00.0/vendor", b"0x10de\n")
    pci(tmp_path, "0000:05:00.0", "0x10de", "0x030000", "what?")
    assert read_kernel(tmp_path).cards == (
        PciCard("0000:01:00.0", 0x1B80, "nvidia"),
        PciCard("0000:02:00.0", 0x20B0, None),
    )


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    assert read_kernel(tmp_path) == Kernel()
    assert driver_on_disk(tmp_path) is None


def test_modules_and_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    assert read_kernel(tmp_path) == Kernel(loaded=True, control=ABSENT)
    put(tmp_path / "dev/nvidiactl")
    assert read_kernel(tmp_path).control == THERE
    put(tmp_path / "other/proc/driver/nvidia/version", b"NVRM version: NVIDIA UNIX x86_64 570.133.07")
    assert read_kernel(tmp_path / "other").loaded
    monkeypatch.setattr(os, "access", lambda path, _: path.name != "nvidiactl")
    assert read_kernel(tmp_path).control == FORBIDDEN


def test_what_wsl_has(tmp_path: Path) -> None:
    put(tmp_path / "dev/dxg")
    put(tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1")
    assert read_kernel(tmp_path) == Kernel(dxg=True)
    put(tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libnvdxgdmal.so.1")
    assert read_kernel(tmp_path) == Kernel(dxg=True, dxgdmal=True)


def test_the_version_of_a_driver_that_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    put(folder / "libcuda.so.590.44.01")
    for name in ("libcuda.so", "libcuda.so.1"):
        (folder / name).symlink_to("libcuda.so.590.44.01")
    assert driver_on_disk(tmp_path) == "590.44.01"


CUDNN, CUBLAS = "lib/libcudnn.so.9", "lib/libcublas.so.12"

OWN = {**FILES, CUDNN: b"cudnn 9.10.2", CUBLAS: b"cublas 12.9"}

WHEELS = {CUDNN: "wheel:nvidia-cudnn-cu12==9.10.2.21", CUBLAS: "wheel:nvidia-cublas-cu12==12.9.1.4"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for path, content in OWN.items():
        put(tmp_path / "package" / path, content)
    return tmp_path / "package"


def manifest() -> Manifest:
    text = json.dumps(manifest_of("modern", OWN))
    value = loads(text, "package")
    return replace(value, files=tuple(map(_from_wheel, value.files)))


def _from_wheel(entry: FileEntry) -> FileEntry:
    return replace(entry, source=WHEELS.get(entry.path, entry.source))


def seen(package: Path, *folders: Path | str, env: Mapping[str, str] | None = None) -> list[Shadow]:
    variable = {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}
    return list(shadows(package, manifest(), env or variable))


def test_a_library_of_the_same_name_in_a_folder_before_the_packages(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "cuda/lib64"
    put(other / "libcublas.so.12.1.3.1", b"cublas 12.1")
    (other / "libcublas.so.12").symlink_to("libcublas.so.12.1.3.1")
    path = str(other / "libcublas.so.12")
    assert seen(package, other) == [Shadow("libcublas.so.12", path, "12.1.3.1", "12.9.1.4")]
    assert seen(package, other, package / "lib") == seen(package, other)
    assert seen(package, package / "lib", other) == []


def test_folders_that_are_not_there_and_empty_names_are_passed_over(package: Path, tmp_path: Path) -> None:
    put(tmp_path / "other/libcudnn.so.9", b"x")
    (tmp_path / "loop").symlink_to("loop")
    found = seen(package, "/no/such", "", tmp_path / "loop", tmp_path / ("x" * 300), tmp_path / "other")
    assert [shadow.name for shadow in found] == ["libcudnn.so.9"]
    assert seen(package, env={"PATH": "/usr/bin"}) == []


@pytest.mark.parametrize(
    ("site", "content", "versions"),
    [
        ("venv/lib/python3.12/site-packages/nvidia", b"cudnn 9.1", [("9.1.0.70", "9.10.2.21")]),
        ("venv/lib/python3.12/site-packages/nvidia", OWN[CUDNN], []),
        ("local", b"cudnn 9.1", [(None, "9.10.2.21")]),
    ],
    ids=["a wheel's", "the same bytes", "where no wheel unpacks to"],
)
def test_a_wheels_library_has_its_wheels_version(
    package: Path, tmp_path: Path, site: str, content: bytes, versions: list[tuple[str | None, str]]
) -> None:
    put(tmp_path / site / "cudnn/lib/libcudnn.so.9", content)
    for wheel in ("nvidia_cudnn_cu12-9.1.0.70", "nvidia_cublas_cu12-12.1.3.1"):
        put((tmp_path / site).parent / f"{wheel}.dist-info/METADATA")
    shadows = seen(package, tmp_path / site / "cudnn/lib")
    assert [(shadow.version, shadow.own) for shadow in shadows] == versions


def test_an_empty_name_is_the_current_folder_and_a_semicolon_parts_too(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules are those of ld.so(8)."""
    here = tmp_path / "here"
    put(here / "libcudnn.so.9", b"x")
    assert [shadow.path for shadow in seen(package, f"/no/such;{here}")] == [f"{here}/libcudnn.so.9"]
    assert seen(package, "/no/such", "/no/such") == []
    monkeypatch.chdir(here)
    assert [shadow.path for shadow in seen(package, "/no/such", "")] == [f"{here}/libcudnn.so.9"]
    assert seen(package, env={"LD_LIBRARY_PATH": ""}) == []
    assert [shadow.path for shadow in seen(package, "../here")] == ["../here/libcudnn.so.9"]


def test_a_removed_current_folder_has_no_libraries(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the doctor ended with a message that a file is missing, without a name."""
    put(tmp_path / "other/libcudnn.so.9", b"x")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = seen(package, "", ".", tmp_path / "other")
    assert [shadow.path for shadow in found] == [str(tmp_path / "other/libcudnn.so.9")]


def test_a_library_whose_version_nothing_tells_is_not_loaded_to_ask_it(package: Path, tmp_path: Path) -> None:
    trap = f'__attribute__((constructor)) void go(void) {{ fopen("{tmp_path}/tripped", "w"); }}'
    source = put(tmp_path / "trap.c", f"#include <stdio.h>\n{trap}\n".encode())
    library = put(tmp_path / "other/libcudnn.so.9")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert [shadow.version for shadow in seen(package, tmp_path / "other")] == [None]
    assert not (tmp_path / "tripped").exists()


def test_distributions_are_read_from_their_records(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.12/site-packages"
    others = ("onnxruntime_extensions-0.14.0", "onnx-1.17.0", "onnxruntime")
    for name in ("onnxruntime-1.20.1", "onnxruntime_gpu-1.23.2", *others):
        put(site / f"{name}.dist-info/METADATA")
    assert list(distributions([tmp_path / "venv", site, tmp_path / "none"])) == [
        Distribution("onnxruntime", "1.20.1", str(site)),
        Distribution("onnxruntime-gpu", "1.23.2", str(site)),
    ]


def test_a_wheel_of_ours_is_read_with_what_it_requires_of_nvidia_and_does_not_find(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.12/site-packages"
    for name in ("nvidia_cublas_cu12-12.9.1.4", "nvidia_cudnn_cu12-9.1.0.70", "onnxruntime_gpu-1.23.2"):
        put(site / f"{name}.dist-info/METADATA")
    ours = put(site / "ortpacks_onnxruntime_gpu-1.23.2.dist-info/METADATA")
    wheels = ("numpy>=1.21.6", "nvidia-cublas-cu12==12.9.1.4", "nvidia-cudnn-cu12==9.10.2.21")
    ours.write_text("".join(f"Requires-Dist: {one}\n" for one in wheels) + "\nRequires-Dist: nvidia-x==1\n")
    assert list(distributions([tmp_path / "venv"])) == [
        Distribution("onnxruntime-gpu", "1.23.2", str(site)),
        Distribution(
            "ortpacks-onnxruntime-gpu", "1.23.2", str(site), lacks=("nvidia-cudnn-cu12==9.10.2.21",)
        ),
    ]


def test_where_this_user_may_write(tmp_path: Path) -> None:
    file = put(tmp_path / "file")
    assert is_writable(tmp_path / "not" / "made" / "yet")
    assert not any(map(is_writable, (file, file / "below", tmp_path / ("x" * 300))))


def test_an_environment_is_read_once_under_lib_and_lib64(tmp_path: Path) -> None:
    """Python makes lib64 a link to lib; Fedora has packages with binaries in a lib64 of its own."""
    for place in ("venv/lib", "fedora/lib64"):
        put(tmp_path / place / "python3.12/site-packages/onnxruntime-1.20.1.dist-info/METADATA")
    (tmp_path / "venv/lib64").symlink_to("lib")
    found = distributions([tmp_path / "venv", tmp_path / "fedora"])
    assert [one.folder for one in found] == [
        str(tmp_path / place / "python3.12/site-packages") for place in ("venv/lib", "fedora/lib64")
    ]


def test_noexec_is_read_from_the_mount() -> None:
    """The expected values come from /proc/mounts, which the kernel writes."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    known = {fields[1]: "noexec" in fields[3].split(",") for fields in mounts if "\\" not in fields[1]}
    places = [place for place in ("/proc", "/sys", "/dev/shm", "/") if place in known]
    assert {place: mounted_noexec(Path(place)) for place in places} == {
        place: known[place] for place in places
    }
    assert not mounted_noexec(Path("/no/such"))


def test_the_model_is_what_onnx_itself_would_write() -> None:
    floats = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "abc"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["a", "b"], ["c"])], "add", floats[:2], floats[2:]
    )
    made = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)])
    assert ort_calls.model() == made.SerializeToString()
    onnx.checker.check_model(onnx.load_from_string(ort_calls.model()), full_check=True)


@pytest.mark.parametrize(("provider", "fails", "on_cpu"), [("cpu", False, None), ("cuda", True, True)])
def test_a_session_in_a_real_onnx_runtime(provider: str, *, fails: bool, on_cpu: bool | None) -> None:
    """The CPU wheel has no CUDA provider library."""
    tried = TRIALS.compute(real_host(), provider)
    assert (tried.provider, tried.failure is not None, tried.on_cpu) == (provider, fails, on_cpu)


CUDA_35 = (
    "core/providers/cuda/cuda_call.cc:123 CUDA failure 35: CUDA driver version is insufficient for "
    "CUDA runtime version ; GPU=-1 ; hostname=x ; expr=cudaSetDevice(info_.device_id);"
)


@pytest.mark.parametrize(
    ("host", "failure", "code"),
    [
        (
            library("1.23.2", refuses=[8], why=CUDA_35),
            "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
            35,
        ),
        (library("1.23.2", refuses=[8], why="No such  node"), "No such node", None),
        (library("1.23.2", refuses=[CREATE_SESSION]), "NULL pointer", None),
        (library("1.23.2", crashes=[9]), "the process died of SIGILL", None),
        (b"<html>" * 99, "invalid ELF header", None),
    ],
    ids=["CUDA's number", "other words", "it makes nothing", "it crashes", "no library"],
)
def test_a_session_that_fails_says_why(tmp_path: Path, host: bytes, failure: str, code: int | None) -> None:
    tried = TRIALS.compute(put(tmp_path / "libonnxruntime.so.1", host), "cuda")
    assert failure in (tried.failure or "")
    assert (tried.code, tried.on_cpu) == (code, False)


def test_a_python_that_is_not_there_is_a_failure_and_no_traceback(tmp_path: Path) -> None:
    tried = OrtTrials(asker({}), str(tmp_path / "python")).compute(tmp_path, "cpu")
    assert "No such file" in (tried.failure or "")


@pytest.mark.parametrize(
    ("provider", "answer", "asked", "on_cpu"),
    [
        ("cuda", '{"version": "1.23.2", "gpu_memory": null}', ["cuda"], None),
        ("cpu", '{"failed": "x"}', ["cpu"], None),
        ("cuda", '{"failed": "x"}', ["cuda", "cpu"], False),
    ],
)
def test_the_cpu_is_tried_where_the_gpu_fails(
    tmp_path: Path, provider: str, answer: str, asked: list[str], on_cpu: bool | None
) -> None:
    providers: list[str] = []

    def ask(argv: Sequence[str], seconds: float) -> ProcessAnswer:
        providers.append(argv[-1])
        return ProcessAnswer(0, answer, "")

    assert OrtTrials(ask, "python3").compute(tmp_path, provider).on_cpu == on_cpu
    assert providers == asked


def test_a_session_with_a_wrong_sum_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_calls, "OrtApi", lambda host: None)
    monkeypatch.setattr(ort_calls, "compute", lambda runtime, provider: 0.0)
    assert ort_calls.answer("compute", "libonnxruntime.so.1", "cpu") == {"failed": "1.5 + 2.25 gives 0.0"}


def test_the_loaders_words_in_the_log_are_the_reason(tmp_path: Path) -> None:
    log = "Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcufft.so.11: cannot open"
    tried = OrtTrials(
        lambda argv, seconds: ProcessAnswer(0, '{"failed": "CUDA EP"}', log), "python3"
    ).compute(tmp_path, "cuda")
    assert tried.failure == "libcufft.so.11: cannot open"
