"""Fixtures with two releases and a machine on which the older one is installed."""

from pathlib import Path

import pytest

from tests.support.faults.client import Ground, Quick, lay_ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return lay_ground(tmp_path_factory.mktemp("ground"))


@pytest.fixture
def quick(ground: Ground, tmp_path: Path) -> Quick:
    return ground.machine(tmp_path / "home")
