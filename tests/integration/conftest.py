from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.machines import Machine
from tests.support.browser import Browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Yield a browser with a profile of its own."""
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Machine]]:
    made = []

    def make() -> Machine:
        made.append(Machine(tmp_path_factory.mktemp("machine")))
        return made[-1]

    yield make
    for one in made:
        one.forget()
