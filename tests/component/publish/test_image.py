"""Tests of image builds: the stage's Dockerfile, tags, labels, and the names that a command line may give."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.stages import build_image
from builder.config.build_plan import Workplace
from builder.errors import CommandError, ValidationError
from builder.formats.manifest import Manifest
from builder.formats.package_names import CPU
from builder.io.docker.engine import ImageBuild
from builder.publish.image import (
    commit_of,
    labels,
    local_tags,
    published_tags,
    require_platforms,
    require_repository,
)
from tests.support.factories.documents import manifest
from tests.support.fakes.ports import FakeEngine
from tests.support.messages import Refused, Told


def test_a_stage_is_built_from_its_file_and_a_failure_is_the_engines(tmp_path: Path) -> None:
    place, engine = Workplace(tmp_path), FakeEngine()

    def fail(_: ImageBuild, on_line: Callable[[str], None]) -> None:
        on_line("#7 useradd: not found")
        raise CommandError("docker buildx build of stage bare exited with 1")

    build_image(place, "toolchain", "ortpacks/x:1", engine=engine, network=True, trees={})
    place.log.write_text("#1 compiled\n", encoding="utf-8")
    engine.on_build = fail
    with pytest.raises(CommandError, match="stage bare exited with 1"):
        build_image(place, "bare", "ortpacks/x:1", engine=engine, network=False, trees={})
    assert place.log.read_text(encoding="utf-8") == "#1 compiled\n#7 useradd: not found\n"
    built = [(one.dockerfile.name, one.target, one.network) for one in engine.builds]
    assert built == [("Dockerfile", "toolchain", True), ("runtime.Dockerfile", "bare", False)]
    assert {(one.tags, one.output) for one in engine.builds} == {(("ortpacks/x:1",), None)}


def of(profile: str | None) -> Manifest:
    found = manifest()
    return replace(found, sm=("50", "90a"), onnxruntime=replace(found.onnxruntime, profile=profile))


@pytest.mark.parametrize(
    ("profile", "service"), [(None, False), ("full", True), ("lean", False), ("minimal", True)]
)
def test_tags_tell_what_is_left_out_and_the_service(told: Told, profile: str | None, service: bool) -> None:
    told("\n".join(local_tags(of(profile), service=service)))
    told("\n".join(published_tags(of(profile), service=service)))


def test_labels_of_a_package_without_cuda_say_nothing_of_nvidia(told: Told) -> None:
    found = manifest()
    bare = replace(found, provider=CPU, sm=(), cuda=None, cudnn=None, driver=None)
    for made in (found, bare):
        named = labels(made, "a83fc4d58c", "https://github.com/ortpacks/ortpacks")
        told("\n".join(f"{name}={value}" for name, value in named.items()))


def test_the_commit_is_what_the_host_library_says() -> None:
    assert commit_of(b"\0ORT Build Info: git-commit-id=e0b66cad28, build type\0") == "e0b66cad28"
    assert commit_of(b"\0git-commit-id=\0") == ""


@pytest.mark.parametrize("text", ["localhost:5000/x", "localhost/x", "a.b/c_d/e-f"])
def test_a_registry_and_a_name_are_taken(text: str) -> None:
    assert require_repository(text) == text


@pytest.mark.parametrize(
    "text", ["owner/ortpacks", "https://ada:secret@ghcr.io/o/n", "a.b/C", "a.b/c:1", "a.b/"]
)
def test_what_names_no_repository_is_told_without_a_login(refused: Refused, text: str) -> None:
    with refused(ValidationError):
        require_repository(text)


def test_platforms_are_named_as_docker_does() -> None:
    assert require_platforms("linux/amd64") == ("linux-x64",)
    assert require_platforms("linux/arm64,linux/amd64,linux/arm64") == ("linux-arm64", "linux-x64")


@pytest.mark.parametrize("text", ["linux/arm/v7", "linux/amd64, linux/arm64", ""])
def test_a_platform_that_no_image_is_made_for_is_told(text: str) -> None:
    with pytest.raises(ValidationError, match=r"--platform .*not made for .*Name linux/amd64, linux/arm64"):
        require_platforms(text)
