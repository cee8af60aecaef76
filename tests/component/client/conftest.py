"""Fixtures with a machine on which nothing is installed, and with the client as one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.adapters.archive.client_zipapp import build_client
from tests.doubles.machine import Machine
from tests.support import ROOT


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(ROOT, tmp_path_factory.mktemp("client") / "ortpacks.pyz", None)
