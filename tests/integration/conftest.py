from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Yield a browser with a profile of its own."""
    made = Browser(tmp_path / "profile")
    yield made
    made.close()
