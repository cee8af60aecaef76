"""Tests of doctor: whole runs with a stand-in for the driver, and what it observes on a machine."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

from builder.client.cli import FORMAT
from builder.client.commands import doctor
from builder.client.commands.doctor import answer_doctor, mounted_noexec, shadows
from builder.client.commands.python_distributions import distributions
from builder.client.context import CommandAnswer
from builder.client.doctor.observations import Distribution, Kernel, Shadow
from builder.client.install.current import folder_in_use
from builder.client.install.prefix import Prefix
from builder.client.probe.loaded import mapped_files
from builder.client.probe.processes import ProcessAnswer, asker
from builder.client.probe.system import read_kernel
from builder.client.trials import ort_calls
from builder.client.trials.try_out import OrtTrials
from builder.files.disk import is_writable
from builder.formats.manifest import Manifest, loads
from tests.doubles.gpus import machine
from tests.doubles.library import CREATE_SESSION, library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, Build, manifest_of, replace_host, write_release
from tests.support.messages import Told
from tests.support.schemas import schema

Written = dict[str, Any]

REFUSES = library(
    "1.23.2",
    refuses=[8],
    why="CUDA failure 209: no kernel image is available for execution on the device ; GPU=0",
)


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home", platform="linux-x64")


def install(home: Machine, host: bytes = FILES[HOST]) -> Path:
    """Install the package for 7.5 to 8.6 and return its folder."""
    index = write_release(home.home.parent / "release", files={**FILES, HOST: host})
    assert home.run("install", "--index", str(index)) == 0, home.err
    installed = folder_in_use(Prefix(home.prefix))
    assert installed is not None
    return installed


def manifest_in(folder: Path) -> Written:
    manifest: Written = json.loads((folder / "manifest.json").read_text())
    return manifest


def examined(
    home: Machine, driver: dict[str, str] | None = None, env: Mapping[str, str] | None = None, **about: object
) -> CommandAnswer:
    around = machine(home.home.parent / "root", env=env or {}, **(driver or {}))  # type: ignore[arg-type]
    context = replace(home.context(), surroundings=lambda: around)
    return answer_doctor(context, Prefix(home.prefix), **about)  # type: ignore[arg-type]


def require_schema(answer: CommandAnswer) -> None:
    """Raise for an answer that, below its head, does not follow the schema."""
    whole = {"format": FORMAT, "command": "doctor", **answer.value}
    schema("client").validate(json.loads(json.dumps(whole)))


def codes(answer: CommandAnswer) -> list[str]:
    findings = answer.value["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings]


def test_two_gpus_and_no_package(home: Machine, driver: dict[str, str]) -> None:
    answer = examined(home, driver)
    assert (codes(answer), answer.code) == (["D207", "D201"], 0)
    assert "Quadro M2200 (5.2) is here." in answer.lines[0]
    assert "  driver 570.133.07, CUDA 12.8" in answer.lines
    assert any(line.startswith("  libcuda: found: CUDA 12.9, 2 listed") for line in answer.lines)


@pytest.mark.parametrize(("files", "code"), [("the client's", "D203"), ("an image's", "D212")])
def test_a_library_that_a_package_lost_is_the_cause_of_its_message(
    home: Machine, tmp_path: Path, files: str, code: str
) -> None:
    folder = install(home)
    env = {"ORT_DYLIB_PATH": str(folder / HOST)}
    if files == "an image's":
        package = shutil.copytree(folder, tmp_path / "opt/ortpacks")
        (package / "gpu-package-info.json").unlink()
        assert home.run("uninstall", "--yes") == 0, home.err
        folder, env = package, {"ORT_DYLIB_PATH": str(package / HOST)}
    said = f"{Path(PROVIDER).name}: cannot open shared object file: No such file or directory"
    assert not {"D203", "D212"} & set(codes(examined(home, env=env, said=said)))
    (folder / PROVIDER).unlink()
    answer = examined(home, env=env, said=said)
    assert [one for one in codes(answer) if one not in ("D003", "D201")] == [code]
    assert answer.lines[0].startswith(f"{code} error: {folder}: {PROVIDER}: is missing")


def test_what_the_user_states_is_told(home: Machine) -> None:
    assert codes(examined(home, env={"ORTPACKS_FORCE_CC": "8.6"})) == ["D004", "D201"]


def test_a_transformer_in_a_lean_package(home: Machine, tmp_path: Path, driver: dict[str, str]) -> None:
    """A model of one node runs, the user's model does not open."""
    why = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'n' ep:'CUDA'). Kernel not found"
    host = library("1.23.2", refuses=[CREATE_SESSION], why=why)
    index = write_release(tmp_path / "release", files={**FILES, HOST: host}, builds=(Build("lean"),))
    assert home.run("install", "--index", str(index)) == 0, home.err
    model = put(tmp_path / "minilm.onnx", ort_calls.model())
    answer = examined(home, driver, models=(str(model),))
    assert {"D211", "D404"} <= set(codes(answer))
    text = "\n".join(answer.lines)
    assert f"D404 error: {model} does not open with cuda: {why}." in text
    assert "-lean-linux-x64 has no kernel for com.microsoft.BiasGelu" in text
    assert f"  {model} does not open with cuda" in answer.lines
    require_schema(answer)


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
    home: Machine, tmp_path: Path, told: Told, flag: str, word: str, code: int
) -> None:
    put(tmp_path / "text.onnx", b"no model")
    put(tmp_path / "model.onnx", ort_calls.model())
    assert home.run("doctor", flag, str(tmp_path / word) if flag == "--try" else word) == code
    told(home.err.strip())


def test_a_damaged_file_and_no_session_with_it(home: Machine) -> None:
    folder = install(home)
    (folder / "LICENSE").write_text("changed")
    answer = examined(home)
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
def test_a_package_that_cannot_be_read_is_a_finding(home: Machine, damage: str) -> None:
    DAMAGES[damage](install(home), home.prefix)
    if damage == "a loop":
        (home.prefix / "loop").replace(home.prefix / "current")
    answer = examined(home)
    assert (codes(answer), answer.code) == (["D202", "D003"], 6)


def rewrite(folder: Path, **changes: object) -> None:
    """Change keys of an installed package's manifest."""
    (folder / "manifest.json").write_text(json.dumps({**manifest_in(folder), **changes}))


def test_a_package_that_runs(home: Machine) -> None:
    """The host library is the stock CPU wheel's; without a GPU the package runs on the CPU."""
    (host,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    replace_host(install(home), host.read_bytes())
    answer = examined(home)
    assert (codes(answer), answer.code) == (["D003"], 0)
    assert answer.lines[0] == "Nothing is wrong."
    assert "  a session of one node ran on cpu" in answer.lines


def test_a_package_without_a_host_library_is_not_tried(home: Machine) -> None:
    folder = install(home)
    (folder / HOST).unlink()
    rewrite(folder, files=[file for file in manifest_in(folder)["files"] if file["path"] != HOST])
    answer = examined(home)
    assert (codes(answer), answer.value["trial"]) == (["D003"], None)


def test_a_package_of_another_provider_needs_no_cuda_to_be_tried(home: Machine) -> None:
    none = dict.fromkeys(("cuda", "cudnn", "driver"))
    rewrite(install(home), provider="coreml", sm=[], capabilities={}, **none)
    trial = examined(home).value["trial"]
    assert isinstance(trial, dict)
    assert trial["provider"] == "coreml"


def test_what_is_before_the_package(home: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(home)
    other = put(tmp_path / "other/libonnxruntime.so.1", b"x")
    home.environments = (tmp_path / "site",)
    for name in ("onnxruntime-1.20.1", "onnxruntime_gpu-1.20.1"):
        put(tmp_path / "site" / f"{name}.dist-info/METADATA")
    folder = folder_in_use(Prefix(home.prefix))
    monkeypatch.setattr(doctor, "mounted_noexec", lambda path: path == folder)
    env = {"LD_LIBRARY_PATH": str(other.parent), "ORT_DYLIB_PATH": str(other)}
    answer = examined(home, env=env)
    assert {"D301", "D302", "D303", "D304", "D307", "D403"} <= set(codes(answer))
    assert "D308" not in codes(answer)
    home.platform = "macos-arm64"
    assert "D302" not in codes(examined(home, env=env)), "only Linux searches it"
    home.platform = "linux-x64"
    inside = examined(home, env={"ORT_DYLIB_PATH": str(home.lib / "libonnxruntime.so.1")})
    assert "D301" not in codes(inside)


def test_temporary_files_on_noexec(home: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for env, place in (({"TMPDIR": "/var/tmp"}, Path("/var/tmp")), ({}, Path("/tmp"))):
        monkeypatch.setattr(doctor, "mounted_noexec", place.__eq__)
        assert "D308" in codes(examined(home, env=env))


def test_the_cache_of_jit(home: Machine, monkeypatch: pytest.MonkeyPatch, driver: dict[str, str]) -> None:
    folder = install(home)
    rewrite(folder, capabilities={**manifest_in(folder)["capabilities"], "9.0": "jit"})
    monkeypatch.setattr(doctor, "is_writable", lambda folder: str(folder) == "/tmp")
    wanted: list[tuple[dict[str, str], str | None]] = [
        ({"CUDA_CACHE_DISABLE": "1"}, "CUDA_CACHE_DISABLE=1"),
        ({"CUDA_CACHE_MAXSIZE": "268435456"}, "CUDA_CACHE_MAXSIZE=268435456"),
        ({"CUDA_CACHE_PATH": "/proc/none"}, "/proc/none"),
        ({"HOME": "/proc/none"}, "/proc/none/.nv/ComputeCache"),
        ({"CUDA_CACHE_MAXSIZE": "much", "CUDA_CACHE_PATH": "/tmp"}, None),
        ({}, None),
    ]
    for env, told in wanted:
        seen = [line for line in examined(home, driver, env).lines if line.startswith("D309")]
        assert [told in line for line in seen] == [True] if told else seen == []


def test_json_of_a_package_holds_the_schema(home: Machine, driver: dict[str, str]) -> None:
    install(home, REFUSES)
    answer = examined(home, driver)
    require_schema(answer)
    assert (codes(answer), answer.code) == (["D022", "D204", "D402", "D207"], 6)
    assert any(
        "a session of one node does not run on cuda, on cpu it does not run" in x for x in answer.lines
    )
    assert home.run("doctor", "--json") == 6
    written = json.loads(home.out)
    schema("client").validate(written)
    assert written["trial"]["provider"] == "cpu"
    assert home.run("doctor") == 6
    assert "means: " in home.out


def test_words_without_end_are_read_in_seconds(home: Machine) -> None:
    """Defect: a search for a file name longer than the limit of 255 characters took minutes."""
    began = time.process_time()
    assert home.run("doctor", "--said", "\x1b" + "9" * 100_000) == 6
    assert time.process_time() - began < 5
    assert "\x1b" not in home.out


def test_the_files_of_a_process_are_in_its_maps(tmp_path: Path) -> None:
    """The lines are of the form of proc_pid_maps(5)."""
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 12 /venv/my libs/libcudnn.so.9\n"
        "7f02-7f03 r-xp 00000000 08:01 13 /venv/libcublas.so.12 (deleted)\n"
        "7f04-7f05 rw-p 00000000 00:00 0 [heap]\n7f06-7f07 rw-p 00000000 00:00 0\n"
    )
    assert list(mapped_files(maps)) == ["/venv/my libs/libcudnn.so.9", "/venv/libcublas.so.12"]
    assert list(mapped_files(tmp_path / "none")) == []


CUDNN, CUBLAS = "lib/libcudnn.so.9", "lib/libcublas.so.12"


def test_what_wsl_has(tmp_path: Path) -> None:
    put(tmp_path / "dev/dxg")
    put(tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1")
    assert read_kernel(tmp_path) == Kernel(dxg=True)
    put(tmp_path / "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libnvdxgdmal.so.1")
    assert read_kernel(tmp_path) == Kernel(dxg=True, dxgdmal=True)


def test_the_version_of_a_driver_that_is_not_loaded(home: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "root/usr/lib/x86_64-linux-gnu"
    put(folder / "libcuda.so.590.44.01")
    for name in ("libcuda.so", "libcuda.so.1"):
        (folder / name).symlink_to("libcuda.so.590.44.01")
    assert examined(home).value["driver"] == "590.44.01"


PROVIDER = "lib/libonnxruntime_providers_cuda.so"

OWN = {**FILES, CUDNN: b"cudnn 9.10.2", CUBLAS: b"cublas 12.9"}

WHEELS = {CUDNN: "wheel:nvidia-cudnn-cu12==9.10.2.21", CUBLAS: "wheel:nvidia-cublas-cu12==12.9.1.4"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for path, content in OWN.items():
        put(tmp_path / "package" / path, content)
    return tmp_path / "package"


def manifest() -> Manifest:
    value = loads(json.dumps(manifest_of("modern", OWN)), "package")
    files = (replace(entry, source=WHEELS.get(entry.path, entry.source)) for entry in value.files)
    return replace(value, files=tuple(files))


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


def test_an_empty_name_is_this_folder(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are those of ld.so(8)."""
    here = tmp_path / "here"
    put(here / "libcudnn.so.9", b"x")
    assert [shadow.path for shadow in seen(package, f"/no/such;{here}")] == [f"{here}/libcudnn.so.9"]
    assert seen(package, "/no/such", "/no/such") == []
    monkeypatch.chdir(here)
    assert [shadow.path for shadow in seen(package, "/no/such", "")] == [f"{here}/libcudnn.so.9"]
    assert seen(package, env={"LD_LIBRARY_PATH": ""}) == []
    assert [shadow.path for shadow in seen(package, "../here")] == ["../here/libcudnn.so.9"]


def test_absent_folders_are_left(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: without its current folder, the doctor ended with a message that a file is missing."""
    other = put(tmp_path / "other/libcudnn.so.9", b"x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = seen(package, "/no/such", "", ".", tmp_path / "loop", tmp_path / ("x" * 300), other.parent)
    assert [shadow.path for shadow in found] == [str(other)]
    assert seen(package, env={"PATH": "/usr/bin"}) == []


def test_distributions_are_read_from_their_records(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.12/site-packages"
    others = ("onnxruntime_extensions-0.14.0", "onnx-1.17.0", "onnxruntime")
    for name in ("onnxruntime-1.20.1", "onnxruntime_gpu-1.23.2", *others):
        put(site / f"{name}.dist-info/METADATA")
    (tmp_path / "venv/lib64").symlink_to("lib")  # as Python makes it
    fedora = tmp_path / "fedora/lib64/python3.12/site-packages"
    put(fedora / "onnxruntime-1.20.1.dist-info/METADATA")
    assert list(distributions([tmp_path / "venv", site, tmp_path / "none", tmp_path / "fedora"])) == [
        Distribution("onnxruntime", "1.20.1", str(site)),
        Distribution("onnxruntime-gpu", "1.23.2", str(site)),
        Distribution("onnxruntime", "1.20.1", str(fedora)),
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


def test_who_owns_the_module_is_read_from_the_record_and_not_from_the_name(tmp_path: Path) -> None:
    """onnxruntime-ep-webgpu has a folder of its own, ort-nightly-gpu has onnxruntime's (PyPI's wheels)."""
    site = tmp_path / "venv/lib/python3.12/site-packages"
    for name, owned in (
        ("onnxruntime-1.26.0", "onnxruntime/__init__.py"),
        ("onnxruntime_ep_webgpu-0.2.0", "onnxruntime_ep_webgpu/__init__.py"),
        ("onnxruntime_extensions-0.14.0", "onnxruntime_extensions/__init__.py"),
        ("ort_nightly_gpu-1.27.0.dev2026", "onnxruntime/__init__.py"),
        ("torch-2.9.0", "torch/onnx/_internal/onnxruntime/__init__.py"),
    ):
        put(site / f"{name}.dist-info/RECORD", f"{owned},sha256=x,12\n".encode())
    names = [one.name for one in distributions([tmp_path / "venv"])]
    assert names == ["onnxruntime", "ort-nightly-gpu"]


def test_a_module_that_lost_its_files_is_found_by_an_import(
    home: Machine, tmp_path: Path, told: Told
) -> None:
    """microsoft/onnxruntime#8623, ServiceNow/azimuth#290: one of two wheels in a folder was uninstalled."""
    site = tmp_path / "site"
    put(site / "onnxruntime-1.23.2.dist-info/RECORD", b"onnxruntime/__init__.py,sha256=x,12\n")
    (site / "onnxruntime/capi").mkdir(parents=True)
    home.environments = (site,)
    answer = examined(home)
    assert (codes(answer), answer.code) == (["D311", "D003", "D201"], 6)
    told("\n".join(answer.lines[:3]))
    put(site / "onnxruntime/__init__.py", b"class InferenceSession: pass\n")
    assert codes(examined(home)) == ["D003", "D201"]


def test_a_line_that_is_no_failure_is_a_note(home: Machine) -> None:
    said = "[W:onnxruntime:, transformer_memcpy.cc:74 ApplyImpl] 3 Memcpy nodes are added to the graph x"
    assert home.run("doctor", "--said", said) == 0
    assert home.out.startswith("Nothing is wrong.")
    assert "D410 note" in home.out
    assert "session of one node" not in home.out


def test_the_first_host_library_that_a_program_finds_is_named(home: Machine, tmp_path: Path) -> None:
    """k2-fsa/sherpa-onnx#2528: a system's older library was loaded in place of the program's."""
    old = put(tmp_path / "root/usr/local/lib/libonnxruntime.so.1.17.1")
    said = "The requested API version [24] is not available, only API versions [1, 17] are supported"
    (line,) = [line for line in examined(home, said=said).lines if "was loaded first" in line]
    assert str(old) in line


def test_where_this_user_may_write(tmp_path: Path) -> None:
    file = put(tmp_path / "file")
    assert is_writable(tmp_path / "not" / "made" / "yet")
    assert not any(map(is_writable, (file, file / "below", tmp_path / ("x" * 300))))


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


@pytest.mark.parametrize(
    ("provider", "answer", "asked", "on_cpu"),
    [
        ("cuda", '{"version": "1.23.2", "gpu_memory": null}', ["cuda"], None),
        ("cpu", '{"failed": "x"}', ["cpu"], None),
        ("cuda", '{"failed": "CUDA EP"}', ["cuda", "cpu"], False),
    ],
)
def test_the_cpu_is_tried_next(
    tmp_path: Path, provider: str, answer: str, asked: list[str], on_cpu: bool | None
) -> None:
    """The loader's words in the log are the reason."""
    providers: list[str] = []
    log = "Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcufft.so.11: cannot open"

    def ask(argv: Sequence[str], seconds: float) -> ProcessAnswer:
        providers.append(argv[-1])
        return ProcessAnswer(0, answer, log)

    tried = OrtTrials(ask, "python3").compute(tmp_path, provider)
    assert (tried.on_cpu, providers) == (on_cpu, asked)
    assert tried.failure == (None if "version" in answer else "libcufft.so.11: cannot open")


def test_no_node_may_run_on_the_cpu_in_place_of_the_gpu(tmp_path: Path) -> None:
    """130 is AddSessionConfigEntry in onnxruntime_c_api.h. This library makes no session in any case."""
    host = put(tmp_path / "libonnxruntime.so.1", library("1.23.2", refuses=[130], why="asked"))
    failures = [OrtTrials(asker({}), sys.executable).compute(host, name).failure for name in ("cuda", "cpu")]
    assert [failure == "asked" for failure in failures] == [True, False]


def test_a_session_with_a_wrong_sum_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_calls, "OrtApi", lambda host: None)
    monkeypatch.setattr(ort_calls, "compute", lambda runtime, provider: 0.0)
    assert ort_calls.answer("compute", "libonnxruntime.so.1", "cpu") == {"failed": "1.5 + 2.25 gives 0.0"}
