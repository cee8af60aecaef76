"""Wiring of inspect without a terminal, and its templates."""

from pathlib import Path

import pytest
from jinja2 import FileSystemLoader

from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def shop(tmp_path: Path, root: Path) -> Wiring:
    return Wiring(root, dist=tmp_path / "dist", reporter=FakeReporter())


@pytest.fixture
def loader(root: Path) -> FileSystemLoader:
    return FileSystemLoader(root / "templates")
