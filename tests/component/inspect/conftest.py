"""Wiring of inspect without a terminal."""

from pathlib import Path

import pytest

from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def shop(tmp_path: Path, root: Path) -> Wiring:
    return Wiring(root, dist=tmp_path / "dist", reporter=FakeReporter())
