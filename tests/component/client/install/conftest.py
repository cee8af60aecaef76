"""Fixtures with two releases and a machine on which the older one is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.faults.client import Ground, Quick, lay_ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return lay_ground(tmp_path_factory.mktemp("ground"))


@pytest.fixture
def quick(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quick:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no test cuts the power; a call takes milliseconds
    return ground.machine(tmp_path / "home")
