"""Two releases, and a machine with the older one installed."""

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
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails here, and each takes milliseconds
    return ground.machine(tmp_path / "home")
