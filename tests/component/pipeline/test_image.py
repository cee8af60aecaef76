"""image: which Dockerfile a stage is built from, under which name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import CommandError
from builder.formats.package_names import Profile
from builder.pipeline.compile import build_image, image_tag
from builder.ports import ImageBuild
from builder.project.build_plan import Workplace
from tests.support.factories.packages import plan
from tests.support.fakes.ports import FakeEngine


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize(
    ("target", "dockerfile"),
    [("toolchain", "Dockerfile"), ("bare", "runtime.Dockerfile"), ("runtime", "runtime.Dockerfile")],
)
def test_a_stage_is_built_from_the_file_it_stands_in(
    root: Path, place: Workplace, target: str, dockerfile: str, network: bool
) -> None:
    engine = FakeEngine()
    build_image(place, target, "ortpacks/x:1", engine=engine, network=network)
    (request,) = engine.builds
    assert request.dockerfile == place.root / dockerfile
    assert (request.target, request.tag, request.output) == (target, "ortpacks/x:1", None)
    assert request.network is network
    golden = (root / "tests/golden" / f"legacy.assembled.{dockerfile}").read_text(encoding="utf-8")
    assert f" AS {target}\n" in golden


def test_a_runtime_image_is_made_of_the_package_and_the_smoke_program(place: Workplace) -> None:
    engine = FakeEngine()
    trees = {"package": Path("unpacked"), "smoke": Path("kit")}
    build_image(place, "runtime", "ortpacks/x:1", engine=engine, trees=trees, builder="remote", network=False)
    (request,) = engine.builds
    assert (request.contexts, request.builder) == (trees, "remote")


def test_a_failure_is_the_engines_and_the_log_goes_on(place: Workplace) -> None:
    def fail(_: ImageBuild, on_line: Callable[[str], None]) -> None:
        on_line("#7 useradd: not found")
        raise CommandError("docker buildx build of stage runtime exited with 1")

    place.log.write_text("#1 compiled\n", encoding="utf-8")
    with pytest.raises(CommandError, match="stage runtime exited with 1"):
        build_image(place, "runtime", "ortpacks/x:1", engine=FakeEngine(on_build=fail), network=False)
    assert place.log.read_text(encoding="utf-8") == "#1 compiled\n#7 useradd: not found\n"


@pytest.mark.parametrize(
    ("profile", "tag"),
    [
        (None, "ortpacks/legacy:1.21.0"),
        (Profile.FULL, "ortpacks/legacy:1.21.0"),
        (Profile.MINIMAL, "ortpacks/legacy:1.21.0-minimal"),
    ],
)
def test_an_image_is_named_by_variant_version_and_what_is_left_out(profile: Profile | None, tag: str) -> None:
    assert image_tag(plan(profile=profile)) == tag
