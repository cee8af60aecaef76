"""The project's copy that the verbs' tests work in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.factories.project_copy import Place, copied_to


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For tests that leave it as it is."""
    return copied_to(tmp_path_factory.mktemp("project"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """For tests that break it."""
    return copied_to(tmp_path)
