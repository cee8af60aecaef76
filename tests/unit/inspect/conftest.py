from pathlib import Path

import pytest
from jinja2 import FileSystemLoader


@pytest.fixture
def loader(root: Path) -> FileSystemLoader:
    return FileSystemLoader(root / "templates")
