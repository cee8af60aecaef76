"""Fixtures with a copy of the project in which tests of verbs run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.factories.project_copy import Place, copied_to


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a copy of the project for tests that do not change it."""
    return copied_to(tmp_path_factory.mktemp("project"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a copy of the project for tests that change it."""
    return copied_to(tmp_path)
