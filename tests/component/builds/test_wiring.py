"""Tests of the environment variables that a run passes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.builds.wiring import Wiring


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
