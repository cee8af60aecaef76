"""Runtime images that the tests of several modules share, each made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.build.runtime_image import RuntimeImage
from builder.config.build_plan import Workplace
from builder.io.archive.unpacking import manifest_of
from builder.io.wiring import Wiring
from builder.publish.image import local_tags
from tests.support import ROOT
from tests.support.containers import drop_copies, image_made_here
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import full_package

SERVICE = "modern service"

IMAGES = {
    "cpu": ("ortpacks/cpu:1.21.0", ()),
    "cpu service": ("ortpacks/cpu:1.32.0-service", ("--service",)),
    "legacy": ("ortpacks/legacy:1.21.0-minimal", ("--profile", "minimal")),
    SERVICE: ("ortpacks/modern:1.26.0-service", ("--mixed", "--service")),
}
"""Name of each kind of image, and the flags that make it. The first word is the variant."""

FULL = ("legacy full", "latest full")
"""Images of packages in ``dist/`` that took hours to compile; without such a package they are not made."""


@pytest.fixture(scope="module", autouse=True)
def _no_copies_are_left() -> Iterator[None]:
    yield
    drop_copies()


@pytest.hookimpl(tryfirst=True)  # runs before that of tests/conftest.py
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder with its tier, and those of large images as thorough."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.images)
            if isinstance(item, pytest.Function) and _kind(item) in (SERVICE, *FULL):
                item.add_marker(pytest.mark.thorough)


def _kind(test: pytest.Function) -> object:
    return test.callspec.params.get("kind") if hasattr(test, "callspec") else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each of its module's ``KINDS``, unless the test names others."""
    named = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "kind" in metafunc.fixturenames and "kind" not in named:
        metafunc.parametrize("kind", metafunc.module.KINDS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def variant(kind: str) -> str:
    return kind.partition(" ")[0]


@pytest.fixture(scope="session")
def image(kind: str, variant: str, dist: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make the image and yield its name; the image is removed unless the name existed before."""
    if kind in FULL:
        package = full_package(variant)
        wiring = Wiring(ROOT, dist=dist)
        (name,) = local_tags(manifest_of(package), service=False)
        with image_made_here(name, dist):
            place = Workplace(dist / kind)
            RuntimeImage(wiring, place, package, None, wiring.reporter).make()
            yield name
        return
    if variant != "cpu":
        request.getfixturevalue(f"{variant}_package")
    name, flags = IMAGES[kind]
    with image_made_here(name, dist), image_made_here(f"ortpacks/{variant}:service", dist):
        done = invoke("image", "--variant", variant, *flags, "--base", "assembled", "--dist", dist)
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        yield name
