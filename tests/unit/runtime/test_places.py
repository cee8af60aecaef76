"""Tests of the choice of a session's GPU, and of the session's options."""

from pathlib import Path
from typing import Any

import pytest
from ortpacks_runtime import libraries, places
from ortpacks_runtime.libraries import Libraries
from ortpacks_runtime.options import model_file, provider_options
from ortpacks_runtime.places import fitting
from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.settings import Settings

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import profile_of
from tests.support.messages import Told

MAXWELL = "GPU-11111111-2222-3333-4444-555555555555"


def gpu(capability: str | None, memory_mib: int | None, uuid: str | None = None) -> dict[str, Any]:
    """Return a device in the form of the client's ``detect --json``."""
    profile = profile_of(Capability.parse(capability), memory_mib).value() if capability else None
    return {
        "index": 7,
        "uuid": uuid,
        "name": f"Card {capability}",
        "capability": capability,
        "memory_mib": memory_mib,
        "profile": profile,
    }


THREE = [gpu("5.2", 24576, MAXWELL), gpu("12.0", 16384), gpu("8.6", 8192)]
PACKAGE = Libraries("ours", Path("lib"), {"5.2": "none", "8.6": "native", "12.0": "jit"})
WHEEL = Libraries("the wheel", Path("capi"), None)


def test_native_code_goes_before_jit_and_before_memory() -> None:
    assert fitting(THREE, PACKAGE, Settings()).ordinal == 2
    assert fitting(THREE[:2], PACKAGE, Settings()).ordinal == 1
    assert [fitting(known, PACKAGE, Settings()).jit for known in (THREE, THREE[:2])] == [False, True]
    assert fitting(THREE, WHEEL, Settings()).ordinal == 0, "nothing is known of a wheel: the most memory"


def test_a_gpu_that_no_client_can_judge_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORTPACKS_CLIENT", "/no/such/ortpacks.pyz")
    monkeypatch.setattr(places, "devices", lambda: (gpu("8.8", 8192),))
    monkeypatch.setattr(libraries, "find", lambda _: PACKAGE)
    with pytest.raises(ProviderError, match="the ortpacks client is not at /no/such"):
        places.prepare("cuda", Settings())


@pytest.mark.parametrize("device", [0, MAXWELL])
def test_the_one_that_is_named_is_taken_by_its_place_in_cudas_order(device: int | str) -> None:
    place = fitting(THREE, WHEEL, Settings(device=device))
    assert (place.ordinal, place.device) == (0, THREE[0])


@pytest.mark.parametrize(
    ("known", "device"), [([], None), (THREE, 3), (THREE, "GPU-9"), (THREE, 0), ([gpu(None, 1)], None)]
)
def test_why_none_is_taken(told: Told, known: list[dict[str, Any]], device: int | str | None) -> None:
    with pytest.raises(ProviderError) as refused:
        fitting(known, PACKAGE, Settings(device=device))
    told(refused.value)


def test_the_profile_is_applied() -> None:
    """Names and values are those of ONNX Runtime's page on its CUDA execution provider."""
    profile = gpu("8.6", 8192)["profile"]
    assert provider_options("cuda", 1, "medium", profile) == {
        "device_id": "1",
        "gpu_mem_limit": str(7372 * 1024 * 1024),
        "arena_extend_strategy": "kNextPowerOfTwo",
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": "1",
        "enable_cuda_graph": "0",
    }
    assert provider_options("cuda", 0, "high", profile)["use_tf32"] == "0", "the model's own numbers"
    assert "gpu_mem_limit" not in provider_options("cuda", 0, "low", gpu("5.2", None)["profile"])
    assert provider_options("cpu", 0, "medium", None) == {}
    assert provider_options("directml", 0, "medium", profile) == {}


def test_a_gpu_of_unknown_capability_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its number, the provider would take GPU 0."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert provider_options("cuda", 1, "medium", None) == {"device_id": "1"}
    unknown = {
        "device_id": "1",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(tmp_path / "ortpacks/tensorrt"),
    }
    assert provider_options("tensorrt", 1, "medium", None) == unknown
    assert (tmp_path / "ortpacks/tensorrt").is_dir()
    profile = gpu("8.6", 8192)["profile"]
    for level, is_half in (("medium", "True"), ("high", "False")):
        assert provider_options("tensorrt", 1, level, profile) == {**unknown, "trt_fp16_enable": is_half}


def test_tensorrt_asks_for_a_folder_for_its_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for folder, why in (("/proc/none", "/proc/none: No such"), ("", "Could not determine home")):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        with pytest.raises(ProviderError, match=f"engines cannot be kept: {why}") as caught:
            provider_options("tensorrt", 0, "medium", None)
        assert caught.value.do == "set XDG_CACHE_HOME to a folder that can be written"


FILES = ("m.onnx", "m_fp16.onnx", "m_int8.onnx", "m_quantized.onnx")


@pytest.mark.parametrize(
    ("capability", "level", "file", "lacks"),
    [
        (None, "low", "m_int8.onnx", "int8"),
        (None, "medium", "m.onnx", ""),
        ("5.2", "low", "m.onnx", ""),
        ("6.1", "medium", "m.onnx", ""),
        ("8.6", "low", "m_fp16.onnx", "fp16"),
        ("8.6", "medium", "m_fp16.onnx", "fp16"),
        ("8.6", "high", "m.onnx", ""),
    ],
)
def test_the_file_is_the_best_that_the_chip_computes_and_one_that_is_not_there_is_told(
    tmp_path: Path, capability: str | None, level: str, file: str, lacks: str
) -> None:
    profile = gpu(capability, 8192)["profile"] if capability else None
    (tmp_path / "m.onnx").touch()
    note = f"level {level} prefers {lacks}: there is no m_{lacks}.onnx" if lacks else ""
    assert model_file(tmp_path / "m.onnx", level, profile) == (tmp_path / "m.onnx", note)
    for name in FILES:
        (tmp_path / name).touch()
    assert model_file(tmp_path / "m.onnx", level, profile) == (tmp_path / file, "")


@pytest.mark.parametrize("name", FILES[1:])
def test_a_file_that_names_its_type_is_taken_without_a_word(tmp_path: Path, name: str) -> None:
    assert model_file(tmp_path / name, "low", None) == (tmp_path / name, "")
