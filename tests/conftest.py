"""Fixtures and tiers of all tests.

A tier is a flag; tests of a tier that was not asked for are reported as skipped. Unit tests can start no
process and open no socket.
"""

import gc
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from builder.config.inputs import ort_wheel
from builder.config.load import load_project
from builder.config.variants import Project
from builder.io.wiring import Wiring
from tests.support import ROOT, messages
from tests.support.fakes.verbs import build

TIERS = {
    "integration": "needs a Docker engine with BuildKit, and minutes: add --integration",
    "images": "needs the images the integration tier builds: add --images",
    "gpu": "needs an NVIDIA GPU: add --gpu",
    "referees": "needs Node.js with npm, and once its registry: add --referees",
    "thorough": "takes many minutes: add --thorough",
}
_IMAGES = "tests/images/"

LONGEST = (
    "test_walked_workflows",
    "test_faults",
    "test_internet_road",
    "test_compile_faults",
    "test_client_road",
    "test_bare_machines",
    "test_shared_cache",
    "test_packages",
)
"""Modules that take minutes, the longest first, so that shorter ones fill the other processes at the end."""


settings.register_profile("here", deadline=None)
settings.load_profile("here")
"""Hypothesis' wall-clock deadline judges the machine that is shared with a compile, not the code."""


def pytest_addoption(parser: pytest.Parser) -> None:
    for tier, why in TIERS.items():
        parser.addoption(f"--{tier}", action="store_true", help=f"run the {tier} tier ({why})")
    parser.addoption(
        "--messages", action="store_true", help="write tests/golden/messages anew, in one process"
    )
    parser.addoption("--golden", action="store_true", help="write the Dockerfiles of tests/golden anew")


def pytest_configure() -> None:
    """Restore the signals that a shell's background jobs (SIGINT) and ``nohup`` (SIGHUP) ignore.

    Each command that a test starts would ignore them too.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class _ByFile(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """The tests of a file stay in one process, and so do those of tests/images, which share images."""

    def _split_scope(self, nodeid: str) -> str:
        return _IMAGES if nodeid.startswith(_IMAGES) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """See pytest-xdist."""
    return _ByFile(config, log)


@pytest.hookimpl(tryfirst=True)  # runs before pytest evaluates -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests of tiers that were not asked for, and sort all tests by their turn.

    A tier is recognised by its marker: the name of a folder is a keyword too, and tests/unit/facts/gpu needs
    no GPU.
    """
    for item in items:
        for tier, why in TIERS.items():
            if item.get_closest_marker(tier) and not config.getoption(f"--{tier}"):
                item.add_marker(pytest.mark.skip(reason=f"tier {tier} not asked for: {why}"))
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Leave tests and modules out of garbage collections, which else look through a million objects each."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    """Return the number of the test's group: each module of ``LONGEST``, the engine's, all other tests."""
    if item.path.stem in LONGEST:
        return LONGEST.index(item.path.stem)
    engine = any(item.get_closest_marker(tier) for tier in ("integration", "images", "gpu"))
    return len(LONGEST) if engine else len(LONGEST) + 1


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder for gigabytes, gone after the module: pytest removes its own when a session ends."""
    folder = tmp_path_factory.mktemp("module")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _unit_tests_stay_pure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "/unit/" not in str(request.path):
        return

    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("a unit test must start no process and open no socket")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[messages.Told]:
    """Return a function that compares a text with the catalogue: see ``support.messages``."""
    page, key = messages.page_of(request.path), (request.path.name, request.node.name)
    writes = request.config.getoption("--messages")
    expected = iter(() if writes else messages.read(page).get(key, ()))
    seen: list[str] = []

    def compare(said: object) -> None:
        seen.append(messages.plain(str(said), tmp_path))
        if not writes:
            assert seen[-1] == next(expected, "<no entry: run this test with --messages>")

    yield compare
    if writes and seen:
        messages.write(page, {key: seen})
    assert not list(expected), "the catalogue has more messages of this test"


@pytest.fixture
def refused(told: messages.Told) -> messages.Refused:
    """Return a context whose code raises an error of exactly this class, with the text of the catalogue."""

    @contextmanager
    def context(kind: type[messages.Kind]) -> Iterator[pytest.ExceptionInfo[messages.Kind]]:
        with pytest.raises(kind) as caught:
            yield caught
        assert caught.type is kind
        told(caught.value)

    return context


@pytest.fixture
def root() -> Path:
    """Return the repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def project() -> Project:
    """Return the project that ``variants.yaml`` describes."""
    return load_project((ROOT / "variants.yaml").read_text(encoding="utf-8"), "variants.yaml")


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all processes of the run: a package is built once and is up to date
    afterwards."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "dist"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def legacy_package(dist: Path) -> Path:
    """Return a package of ORT's real source, compiled for legacy's five architectures with
    profile minimal."""
    return build(dist, "--variant", "legacy", "--profile", "minimal")


@pytest.fixture(scope="session")
def modern_package(dist: Path) -> Path:
    """Return a package of the official wheel, repacked: the wheel of the assembled base's version
    lacks a patch."""
    return build(dist, "--variant", "modern", "--mixed")


@pytest.fixture(scope="session")
def packaged_library() -> Callable[[str], Path]:
    """Return a function from a bundled library's name to its path; the provider is the official wheel's."""
    shop = Wiring(ROOT)
    project, store = shop.project, shop.store(shop.lock)
    wheels = (
        *project.cuda.libraries.values(),
        project.cudnn.wheel,
        ort_wheel(project.onnxruntime.version),
    )
    return lambda name: next(path for wheel in wheels for path in store.unpack(wheel).rglob(name))
