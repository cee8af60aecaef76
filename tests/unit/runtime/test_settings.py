"""Tests of the sources of a session's settings, and of messages for wrong ones."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ortpacks_runtime.providers import ProviderError, chain
from ortpacks_runtime.settings import Settings, settings

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


def test_without_a_word_it_is_auto_on_the_gpu_that_fits_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_folders_config_may_have_keys_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[ai]\napi_key = 'x'\nlevel = 'low'\n")
    assert settings({}, {}).level == "low"
    (tmp_path / "config.toml").write_text("[ai]\nprovidr = 'cpu'\n")
    with pytest.raises(ProviderError, match=r"Did you mean provider\?"):
        settings({}, {})


def test_the_config_of_the_folder_is_read(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert settings({}, {}).embedding_dim == 384


@pytest.mark.parametrize(
    ("given", "env", "told"),
    [
        ({"provider": "cudda"}, {}, r"^provider='cudda': 'cudda' is none of .*Did you mean cuda\?$"),
        ({"provider": 3}, {}, r"^provider=3: a text is wanted$"),
        ({}, {"EXECUTION_PROVIDER": "tensort"}, r"^EXECUTION_PROVIDER: .*Did you mean tensorrt\?$"),
        ({}, {"ORTPACKS_LEVEL": "hihg"}, r"^ORTPACKS_LEVEL: .*low, medium, high\. Did you mean high\?$"),
        ({"device": -1}, {}, r"^device=-1: a GPU's number is wanted, 0 or more, or its UUID"),
        ({"device": True}, {}, r"^device=True: a GPU's number"),
        ({}, {"GPU_DEVICE": "first"}, r"^GPU_DEVICE: a GPU's number"),
        ({}, {"ORTPACKS_STRICT": "maybe"}, r"^ORTPACKS_STRICT: true or false is wanted$"),
        (
            {},
            {"ORTPACKS_EMBEDDING_DIM": "0"},
            r"^ORTPACKS_EMBEDDING_DIM: a whole number from 1 to 1000000000",
        ),
        ({}, {"ORTPACKS_THREADS": "9" * 5000}, r"^ORTPACKS_THREADS: a whole number from 1 to 1024 is wanted"),
        ({"threads": 1025}, {}, r"^threads=1025: a whole number from 1 to 1024 is wanted"),
        ({"threads": True}, {}, r"^threads=True: a whole number from 1 to 1024 is wanted"),
        ({"threads": "\u0663"}, {}, r"a whole number from 1 to 1024 is wanted"),
        ({"device": "\u0663"}, {}, r"a GPU's number is wanted"),
        ({}, {"ORTPACKS_MODEL_NAME": "mod\udcff"}, r"^ORTPACKS_MODEL_NAME: a text is wanted"),
        ({}, {"ORTPACKS_CONFIG": "/no/such.toml"}, r"^ORTPACKS_CONFIG=/no/such.toml: No such file"),
    ],
)
def test_a_wrong_value_is_told_with_where_it_stands(
    given: dict[str, object], env: dict[str, str], told: str
) -> None:
    with pytest.raises(ProviderError, match=told):
        settings(given, env)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ai]\ncolour = 'red'\n", r"config.toml: \[ai\]: 'colour' is none of"),
        ("[ai]\nprovidr = 'cpu'\n", r"config.toml: \[ai\]: 'providr' is none of .*Did you mean provider\?"),
        ("[ai]\nprovider = 'gpux'\n", r"config.toml: ai.provider = 'gpux': .*Did you mean gpu\?"),
        ("[ai]\nembedding_dim = '12x'\n", r"config.toml: ai.embedding_dim = '12x': a whole number"),
        ("ai = 3\n", r"config.toml: ai: a table is wanted"),
        ("[ai\n", r"config.toml: not TOML: .*line 1"),
    ],
)
def test_a_wrong_line_of_the_file_is_told_with_its_key(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ProviderError, match=told):
        settings({}, {"ORTPACKS_CONFIG": str(file)})


def test_a_byte_order_mark_before_the_file_is_no_error(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert settings({}, {"ORTPACKS_CONFIG": str(config)}).level == "high"


def test_a_file_of_the_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[ai]\n")
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(ProviderError, match=r"^config.toml: Permission denied"):
        settings({}, {})


def test_a_folder_that_this_user_may_not_search_has_no_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("provider", "platform", "wanted"),
    [
        ("auto", "linux", ("tensorrt", "cuda", "cpu")),
        ("auto", "win32", ("tensorrt", "cuda", "directml", "cpu")),
        ("auto", "darwin", ("coreml", "cpu")),
        ("auto", "freebsd14", ("cpu",)),
        ("cuda", "linux", ("cuda", "cpu")),
        ("cpu", "linux", ("cpu",)),
    ],
)
def test_every_chain_ends_with_the_cpu(provider: str, platform: str, wanted: tuple[str, ...]) -> None:
    assert chain(provider, platform) == wanted
