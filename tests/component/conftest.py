"""Fixtures with a copy of the project in which tests of verbs run, and with the client as one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.adapters.archive.client_zipapp import build_client
from tests.support import ROOT
from tests.support.factories.project_copy import Place, copied_to


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a copy of the project for tests that do not change it."""
    return copied_to(tmp_path_factory.mktemp("project"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a copy of the project for tests that change it."""
    return copied_to(tmp_path)


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(ROOT, tmp_path_factory.mktemp("client") / "ortpacks.pyz", None)
