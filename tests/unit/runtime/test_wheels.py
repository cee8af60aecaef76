"""Tests of the runtime layer with one of our wheels: ``ortpacks.json`` counts if the wheel is in use."""

import json
import re
import sys
from pathlib import Path

import onnxruntime
import pytest
from ortpacks_runtime import libraries
from ortpacks_runtime.client import ClientError
from ortpacks_runtime.providers import CUDA, DIRECTML, ORT_NAMES, TENSORRT, ProviderError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the ``site-packages`` of an imported onnxruntime, on a machine without the client."""

    def nothing(_: str) -> dict[str, dict[str, str]]:
        raise ClientError("nothing is installed")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ORT_DYLIB_PATH", raising=False)
    monkeypatch.setattr(libraries, "ask", nothing)
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "onnxruntime/__init__.py"))
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    return tmp_path


def put(site: Path, told: str) -> None:
    info = site / "ortpacks_onnxruntime_gpu-1.23.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ortpacks-onnxruntime-gpu\nVersion: 1.23.2\n")
    (info / "ortpacks.json").write_text(told)


def package(variant: str, **capabilities: str) -> str:
    return json.dumps({"format": 1, "package": {"variant": variant, "capabilities": capabilities}})


def test_its_capabilities_are_known_without_a_package(site: Path) -> None:
    put(site, package("modern", **{"8.6": "native", "12.0": "jit"}))
    found = libraries.find(CUDA)
    assert found.name == "ortpacks-onnxruntime-gpu 1.23.2 (modern)"
    assert found.capabilities == {"8.6": "native", "12.0": "jit"}
    assert found.folder == site / "onnxruntime/capi"


def test_the_wheel_for_the_cpu_says_that_it_is(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(site, package("cpu"))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ProviderError, match=r"1\.23\.2 here is its wheel for the CPU.*") as error:
        libraries.require(CUDA)
    assert "--preview-features wheel-variants" in error.value.do


@pytest.mark.parametrize(
    ("provider", "driver", "plugins", "advice"),
    [
        (CUDA, "libc.so.6", True, "pip install onnxruntime-gpu in place of .*"),
        (CUDA, "libabsent.so.1", True, r"nothing, unless there is an NVIDIA GPU: .* --gpus all\)"),
        (CUDA, "libabsent.so.1", False, r"nothing, unless .* --gpus all\), and pip install .*"),
        (TENSORRT, "libc.so.6", True, "nothing, unless you need TensorRT itself: then pip install .*"),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_machine_without_a_driver_is_not_sent_for_the_wheel_for_gpus(
    monkeypatch: pytest.MonkeyPatch, provider: str, driver: str, plugins: bool, advice: str
) -> None:
    monkeypatch.setattr(libraries, "takes_plugins", lambda: plugins)
    monkeypatch.setattr(libraries, "_NEEDS", {CUDA: driver, TENSORRT: "libnvinfer.so.10"})
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ProviderError, match="built without") as error:
        libraries.require(provider)
    assert re.fullmatch(advice, error.value.do)


@pytest.mark.usefixtures("site")
def test_the_version_of_the_installed_package_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p/lib").mkdir(parents=True)
    (tmp_path / "p/manifest.json").write_text('{"onnxruntime": {"version": "1.30.0"}}')
    monkeypatch.setenv("ORT_DYLIB_PATH", str(tmp_path / "p/lib/libonnxruntime.so.1"))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ProviderError) as error:
        libraries.require(DIRECTML)
    assert error.value.do == "pip install onnxruntime-directml==1.30.0 in place of the installed one"


@pytest.mark.parametrize(("own", "takes"), [(True, False), (False, True)])
def test_a_host_with_cuda_of_its_own_takes_no_plugin(
    monkeypatch: pytest.MonkeyPatch, own: bool, takes: bool
) -> None:
    monkeypatch.setattr(libraries, "has_own_cuda", lambda: own)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", None, raising=False)
    assert libraries.takes_plugins() is takes


@pytest.mark.parametrize("told", ["", "[]", "{", '{"package": 1}'])
def test_what_cannot_be_read_counts_as_another_wheel(site: Path, told: str) -> None:
    put(site, told)
    assert libraries.find(CUDA).name == "onnxruntime 1.23.2 (wheel)"


def test_another_onnxruntime_is_not_ours(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(site, package("modern", **{"8.6": "native"}))
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "other/onnxruntime/__init__.py"))
    assert libraries.find(CUDA).capabilities is None


def test_what_onnxruntime_prints_of_missing_libraries_is_no_part_of_an_answer(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``doctor --json`` prints one JSON object on stdout."""
    put(site, "")
    failed = "Failed to load libcublasLt.so.12"
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: sys.stdout.write(failed), raising=False)
    with pytest.raises(ProviderError):
        libraries.load(libraries.find(CUDA), CUDA)
    assert capsys.readouterr() == ("", failed)


@pytest.mark.parametrize(
    ("file", "provider", "used"),
    [
        ("libonnxruntime_providers_cuda.so", CUDA, "ours"),
        ("libonnxruntime_providers_cuda.so", TENSORRT, "onnxruntime 1.23.2 (wheel)"),
        ("libonnxruntime.so.1", CUDA, "onnxruntime 1.23.2 (wheel)"),
    ],
)
def test_a_package_without_the_provider_leaves_it_to_the_wheel(
    site: Path, monkeypatch: pytest.MonkeyPatch, file: str, provider: str, used: str
) -> None:
    """Packages have no TensorRT, and the one for the CPU has no CUDA. The report named them all the same, and
    a GPU that they do not serve was refused."""
    (site / "ours/lib").mkdir(parents=True)
    (site / "ours/lib" / file).touch()
    manifest = {"name": "ours", "onnxruntime": {"version": "1.23.2"}, "capabilities": {"8.6": "none"}}
    (site / "ours/manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("ORT_DYLIB_PATH", str(site / "ours/lib/libonnxruntime.so.1"))
    found = libraries.find(provider)
    assert found.name == used
    assert found.note == ("" if used == "ours" else f"ours has no {ORT_NAMES[provider]}: the wheel's is used")
