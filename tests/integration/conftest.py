from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.faults_run import Run
from tests.integration.toolchain import SOURCE, Toolchain, running
from tests.support.browser import Browser
from tests.support.containers import drop_copies


@pytest.hookimpl(tryfirst=True)  # runs before that of tests/conftest.py
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder with its tier."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="module", autouse=True)
def _no_copies_are_left() -> Iterator[None]:
    yield
    drop_copies()


@pytest.fixture(autouse=True)
def _no_build_is_left() -> Iterator[None]:
    yield
    if Run.end_all():
        drop_copies()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Yield a browser with a profile of its own."""
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


@pytest.fixture(scope="module")
def container(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """Yield a container of the toolchain image with the stand-in for nvcc."""
    with running(dist, tmp_path_factory.mktemp("unit")) as made:
        yield made


@pytest.fixture
def toolchain(container: Toolchain) -> Toolchain:
    """Return the container with a new unit and an empty ccache."""
    container.new_unit(SOURCE)
    return container
