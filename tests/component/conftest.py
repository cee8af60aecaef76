"""Fixtures with a copy of the project in which tests of verbs run, and with the client as one file.

Files of these tests are small, and lie in memory where the machine has a file system for that.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from builder.build.verbs.releases.releasing import add_programs
from builder.config.load import load_project, parse_lock
from builder.facts.ort.configured import Configure, Configured, Trace
from builder.io.archive.client_zipapp import build_client
from builder.io.cmake import laid_out as lay_out
from builder.io.process import ProcessRunner
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.project_copy import Place, copied_to, times_below
from tests.support.fakes.ports import FakeReporter

MEMORY = Path("/dev/shm")
"""Linux' file system in memory: making and removing files there takes less CPU time than on a disk."""

_PREFIX = "ortpacks-tests-"
"""Beginning of a folder's name there, before the id of the process that makes it."""

ROOM = 1 << 30
"""Bytes that must be free there, for all processes of a run; one process has taken at most 0.1 GB."""


@pytest.fixture(scope="session")
def tmp_path_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pytest.TempPathFactory]:
    """Yield a factory of folders in memory, from which programs can be started; else pytest's own.

    Folders of tests that failed stay until the next run.
    """
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC or _free(MEMORY) < ROOM:
        yield tmp_path_factory
        return
    for left in MEMORY.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY))
    trace = request.config.trace.get("tmpdir")
    yield pytest.TempPathFactory(folder / "tests", 3, "failed", trace, _ispytest=True)
    if not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    """Keep what CMake makes of a source, and what is read of a text: most tests have one of a few of each."""
    made: dict[object, Configured] = {}

    @contextmanager
    def laid_out(runner: ProcessRunner, program: str, files: Mapping[str, str]) -> Iterator[Configure]:
        laid = list[Configure]()
        with ExitStack() as stack:

            def answer(settings: Mapping[str, str], trace: Trace) -> Configured:
                asked = (program, frozenset(files.items()), frozenset(settings.items()), trace)
                if asked not in made:
                    laid[:] = laid or [stack.enter_context(lay_out(runner, program, files))]
                    made[asked] = laid[0](settings, trace)
                return made[asked]

            yield answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builder.io.wiring.laid_out", laid_out)
        for read in (load_project, parse_lock):
            patch.setattr(f"builder.io.wiring.{read.__name__}", cache(read))
        yield
        project, lock = Wiring(ROOT).project, Wiring(ROOT).committed_lock
        patch.undo()
        assert (project, lock) == (Wiring(ROOT).project, Wiring(ROOT).committed_lock), "a test changed them"


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Yield a folder for files with large holes, which take memory once they are read in memory's own."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


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


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the release gpu-libs-v1.23.2 has beside its packages."""
    wiring = Wiring(ROOT, dist=tmp_path_factory.mktemp("programs"), reporter=FakeReporter())
    (wiring.dist / "ortpacks-0.9.0-py3-none-any.whl").touch()
    add_programs(wiring, wiring.project, "gpu-libs-v1.23.2")
    return wiring.dist
