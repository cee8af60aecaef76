"""Tests of the environment variables that a run passes on."""

import os
from pathlib import Path

import pytest

from builder.errors import ConfigError
from builder.io.wiring import Wiring


@pytest.mark.parametrize(
    ("writable", "given", "expected"),
    [(True, None, None), (False, None, "{}/cache/buildx"), (False, "/state", "/state")],
    ids=["home", "read-only", "named"],
)
def test_buildx_has_a_folder_for_its_state_where_home_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool, given: str | None, expected: str | None
) -> None:
    """``os.access`` is replaced because root, who may run this test, can write into any folder."""
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    monkeypatch.delenv("BUILDX_CONFIG", raising=False)
    if given:
        monkeypatch.setenv("BUILDX_CONFIG", given)
    wanted = expected.format(tmp_path) if expected else None
    assert Wiring(tmp_path).env.get("BUILDX_CONFIG") == wanted


@pytest.mark.parametrize("text", ["soon", "-1", "\N{SUPERSCRIPT TWO}", "9" * 5000, ""])
def test_a_time_in_another_form_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    wiring = Wiring(tmp_path)
    with pytest.raises(ConfigError, match=r"SOURCE_DATE_EPOCH is .* it must be seconds since 1970"):
        wiring.package_writer(wiring.reporter)


def test_a_user_without_a_home_needs_a_cache_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that runs under any uid has neither ``HOME`` nor an entry in ``/etc/passwd``."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("HOME", "XDG_CACHE_HOME", "ORTPACKS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="Set ORTPACKS_CACHE"):
        _ = Wiring(tmp_path).cache
    monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path))
    assert Wiring(tmp_path).cache == tmp_path
