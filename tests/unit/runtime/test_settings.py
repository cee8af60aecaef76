"""Tests of the sources of a session's settings, and of messages for wrong ones."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ortpacks_runtime.providers import ProviderError, chain
from ortpacks_runtime.settings import Settings, settings

from tests.support.messages import Told

CONFIG = """\
[ai]
provider = "trt"
model_name = "all-MiniLM-L6-v2"
embedding_dim = 384
auto_download = true
device = 1
level = "high"

[server]
port = 1
"""


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
def test_a_wrong_line_of_the_file_is_told_with_its_key(tmp_path: Path, told: Told, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ProviderError) as refused:
        settings({}, {"ORTPACKS_CONFIG": str(file)})
    told(refused.value)


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
