"""Fixtures with a copy of the project in which tests of verbs run, and with the client as one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.adapters.archive.client_zipapp import build_client
from tests.support import ROOT
from tests.support.factories.project_copy import Place, copied_to, times_below


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a copy of the project for tests that do not change it."""
    return copied_to(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def _linked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Return a copy of ``builder`` whose files many copies of the project share, and the files' times."""
    folder = copied_to(tmp_path_factory.mktemp("linked")).folder / "builder"
    return folder, times_below(folder)


@pytest.fixture
def place(tmp_path: Path, _linked: tuple[Path, dict[str, int]]) -> Iterator[Place]:
    """Return a copy of the project for tests that change it.

    Its files of ``builder`` are links: who changes one writes a new file and renames it, as verbs do.
    """
    builder, times = _linked
    yield copied_to(tmp_path, builder)
    assert times_below(builder) == times, "a file that other tests have too was written to"


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(ROOT, tmp_path_factory.mktemp("client") / "ortpacks.pyz", None)
