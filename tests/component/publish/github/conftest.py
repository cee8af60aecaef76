"""Fixtures with the double of GitHub, alone and behind a dist folder that is published on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.github import TOKEN, GitHubDouble
from tests.support.factories.publishing import Desk, open_desk


@pytest.fixture
def double(tmp_path: Path) -> Iterator[GitHubDouble]:
    with GitHubDouble(tmp_path / "github").running() as double:
        yield double


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a desk; afterwards, no line of its output may show the token."""
    with open_desk(tmp_path) as desk:
        yield desk
        assert TOKEN not in desk.output
