"""Fixtures for publishing to the GitHub double and for mirroring into a folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.github import TOKEN
from tests.support.factories.mirroring import Stand, open_stand
from tests.support.factories.publishing import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a desk; afterwards, no line of its output may show the token."""
    with open_desk(tmp_path) as desk:
        yield desk
        assert TOKEN not in desk.output


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return open_stand(tmp_path, monkeypatch)
