import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.io.wiring import Wiring
from tests.integration.faults_run import Run
from tests.integration.machines import Machine
from tests.integration.toolchain import SOURCE, Toolchain, running
from tests.support import ROOT
from tests.support.browser import Browser

ROOM = 25_000_000_000
"""Free bytes below which BuildKit's copies of libraries are dropped, 1.6 GB for each folder built in."""


@pytest.hookimpl(tryfirst=True)  # runs before that of tests/conftest.py
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder with its tier."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="module", autouse=True)
def _room_for_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    if shutil.disk_usage(tmp_path_factory.getbasetemp()).free < ROOM:
        engine = Wiring(ROOT).engine
        try:
            for held in engine.resources():
                if held.kind == "copy":
                    engine.remove(held)
        except BuilderError:  # the engine does not answer: the module's own tests say so
            return


@pytest.fixture(autouse=True)
def _no_build_is_left() -> Iterator[None]:
    yield
    Run.end_all()


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
