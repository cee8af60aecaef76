"""Fixtures for publishing to the GitHub double and for mirroring into a folder or a registry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.factories.mirroring import Stand, open_stand
from tests.support.factories.publishing import Desk, open_desk
from tests.support.factories.registering import Counter, open_counter


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return open_stand(tmp_path, monkeypatch)


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no test cuts the power
    with open_counter(tmp_path) as counter:
        yield counter
