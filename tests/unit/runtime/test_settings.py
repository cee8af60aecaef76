"""Tests of the sources of a session's settings, the choice of its GPU, and its options."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ortpacks_runtime import libraries, places
from ortpacks_runtime.libraries import Libraries
from ortpacks_runtime.options import model_file, provider_options
from ortpacks_runtime.places import fitting
from ortpacks_runtime.providers import ProviderError, chain
from ortpacks_runtime.settings import Settings, settings

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import profile_of
from tests.support.messages import Refused, Told
from tests.support.tables import data_text, table

CONFIG = data_text("runtime/config.toml")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    return file


def test_without_a_word_it_is_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings({}, {}) == Settings(provider="auto", device=None, level="medium", strict=False)


def test_the_argument_goes_before_the_environment_and_that_before_the_file(config: Path) -> None:
    env = {"ORTPACKS_CONFIG": str(config)}
    assert settings({}, env) == Settings("tensorrt", 1, "high", False, "all-MiniLM-L6-v2", 384, True)
    env |= {"EXECUTION_PROVIDER": "GPU", "GPU_DEVICE": "GPU-6f1c0a3e", "ORTPACKS_STRICT": "yes"}
    found = settings({}, env)
    assert (found.provider, found.device, found.strict, found.level) == ("cuda", "GPU-6f1c0a3e", True, "high")
    found = settings({"provider": "cpu", "device": 0, "level": None}, env)
    assert (found.provider, found.device, found.level) == ("cpu", 0, "high")
    assert settings({}, {**env, "ORTPACKS_PROVIDER": "metal"}).provider == "coreml"


def test_the_default_of_an_image_gives_way_to_whatever_names_a_provider(config: Path) -> None:
    image = {"ORTPACKS_DEFAULT_PROVIDER": "cpu"}
    assert settings({}, image).provider == "cpu"
    assert settings({}, {**image, "ORTPACKS_CONFIG": str(config)}).provider == "tensorrt"
    assert settings({}, {**image, "EXECUTION_PROVIDER": "gpu"}).provider == "cuda"
    with pytest.raises(ProviderError, match=r"^EXECUTION_PROVIDER: 'cudda' is none of"):
        settings({}, {**image, "EXECUTION_PROVIDER": "cudda"})


def test_the_folders_config_may_have_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[ai]\napi_key = 'x'\nlevel = 'low'\n")
    assert settings({}, {}).level == "low"
    (tmp_path / "config.toml").write_text("[ai]\nprovidr = 'cpu'\n")
    with pytest.raises(ProviderError):
        settings({}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("provider", value) for value in ("cudda", 3)),
        *(("device", value) for value in (-1, True, "\u0663")),
        *(("threads", value) for value in (1025, True, "\u0663")),
        *(("EXECUTION_PROVIDER", "tensort"), ("ORTPACKS_LEVEL", "hihg"), ("GPU_DEVICE", "first")),
        *(("ORTPACKS_STRICT", "maybe"), ("ORTPACKS_EMBEDDING_DIM", "0"), ("ORTPACKS_THREADS", "9" * 5000)),
        *(("ORTPACKS_MODEL_NAME", "mod\udcff"), ("ORTPACKS_CONFIG", "/no/such.toml")),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_wrong_value_is_told_with_where_it_stands(told: Told, name: str, value: object) -> None:
    given, env = ({name: value}, {}) if name.islower() else ({}, {name: str(value)})
    with pytest.raises(ProviderError) as refused:
        settings(given, env)
    told(ascii(str(refused.value)))


@pytest.mark.parametrize(
    "text",
    [
        *("[ai]\ncolour = 'red'\n", "[ai]\nprovidr = 'cpu'\n", "[ai]\nprovider = 'gpux'\n"),
        *("[ai]\nembedding_dim = '12x'\n", "ai = 3\n", "[ai\n"),
    ],
)
def test_a_wrong_line_of_the_file_is_told_with_its_key(tmp_path: Path, refused: Refused, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with refused(ProviderError):
        settings({}, {"ORTPACKS_CONFIG": str(file)})


def test_a_byte_order_mark_before_the_file_is_no_error(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert settings({}, {"ORTPACKS_CONFIG": str(config)}).level == "high"


def test_an_unreadable_file_of_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[ai]\n")
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(ProviderError, match=r"^config.toml: Permission denied"):
        settings({}, {})


def test_a_closed_folder_has_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``sudo -u other`` keeps the current folder."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        assert settings({}, {}) == Settings()
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


def test_every_chain_ends_with_the_cpu() -> None:
    platforms = ("linux", "win32", "darwin", "freebsd14")
    assert [chain("auto", platform) for platform in platforms] == [
        ("tensorrt", "cuda", "cpu"),
        ("tensorrt", "cuda", "directml", "cpu"),
        ("coreml", "cpu"),
        ("cpu",),
    ]
    assert [chain(provider, "linux") for provider in ("cuda", "cpu")] == [("cuda", "cpu"), ("cpu",)]


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


def test_a_gpu_that_no_client_can_judge_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_why_none_is_taken(refused: Refused, known: list[dict[str, Any]], device: int | str | None) -> None:
    with refused(ProviderError):
        fitting(known, PACKAGE, Settings(device=device))


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


def test_tensorrt_asks_for_a_folder_for_its_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for folder, why in (("/proc/none", "/proc/none: No such"), ("", "Could not determine home")):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        with pytest.raises(ProviderError, match=f"engines cannot be kept: {why}") as caught:
            provider_options("tensorrt", 0, "medium", None)
        assert caught.value.do == "set XDG_CACHE_HOME to a folder that can be written"


FILES = ("m.onnx", "m_fp16.onnx", "m_int8.onnx", "m_quantized.onnx")


@pytest.mark.parametrize(("capability", "level", "file", "lacks"), table("runtime/model-files.txt"))
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
