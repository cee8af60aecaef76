"""Fixture with the double of a registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.loopback import listening
from tests.doubles.registry import Served


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    with listening(server):
        yield server
