"""Tests of the files that a package must hold, against lists written by hand."""

from dataclasses import replace

import pytest

from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input
from builder.config.variants import Variant
from builder.contents.required_files import libraries, required_files
from builder.errors import ValidationError
from builder.formats.package_names import Host
from tests.support.factories.packages import official, plan
from tests.support.messages import Refused, Told
from tests.support.real_packages import LIBRARIES


def test_a_package_holds_eighteen_libraries_and_the_licences_of_their_owners(told: Told) -> None:
    files = required_files(plan())
    assert [file.path[4:] for file in files if file.path.startswith("lib/")] == sorted(LIBRARIES)
    told("\n".join(f"{file.path} {file.source and file.source.key} {file.licence}" for file in files))


@pytest.mark.parametrize(
    ("provider", "platform"),
    [
        *(("cpu", platform) for platform in ("linux-x64", "linux-arm64", "win-x64", "macos-arm64")),
        ("directml", "win-x64"),
        ("coreml", "macos-arm64"),
    ],
)
def test_a_package_without_cuda_is_made_of_its_wheel(provider: str, platform: str, told: Told) -> None:
    """The places are those of the C libraries in the wheels of 1.23, by ``unzip -l``."""
    wheel = Input.wheel("onnxruntime==1.23.2", platform)
    variant = Variant(provider, (), (), provider=provider, platform=platform, wheel=wheel)
    files = required_files(official(variant=variant, ort_version="1.23.2", ort_wheel=wheel))
    told("\n".join(f"{file.path} {' '.join(file.places)}" for file in files))
    assert {file.source for file in files} == {wheel}
    names = {file.path for file in files if file.path.startswith("lib/")}
    assert {f"lib/{name}" for name in libraries(provider, platform)} == names


TENSORRT = "lib/libonnxruntime_providers_tensorrt.so"


def with_tensorrt(made: BuildPlan) -> BuildPlan:
    return replace(
        made, project=replace(made.project, onnxruntime=replace(made.project.onnxruntime, tensorrt=True))
    )


@pytest.mark.parametrize("made", [plan(), official()])
def test_the_tensorrt_provider_is_the_official_wheel_s_whatever_is_compiled(made: BuildPlan) -> None:
    (file,) = set(required_files(with_tensorrt(made))) - set(required_files(made))
    assert (file.path, file.source, file.vendor) == (TENSORRT, made.ort_wheel, "onnxruntime")
    assert file.places == ("onnxruntime/capi/libonnxruntime_providers_tensorrt.so",)


def test_a_compiled_host_library_and_the_tensorrt_provider_cannot_be_together(refused: Refused) -> None:
    with refused(ValidationError):
        required_files(with_tensorrt(plan(host=Host.SOURCE)))
    assert required_files(with_tensorrt(official(host=Host.SOURCE)))  # a repacked wheel has no compiled files


def libraries_of(platform: str, cuda: str) -> str:
    """Return NVIDIA's libraries with their places in their wheels."""
    made = official()
    project = replace(made.project, cuda=replace(made.project.cuda, version=cuda))
    changed = replace(made, project=project, variant=replace(made.variant, platform=platform))
    files = [file for file in required_files(changed) if file.vendor == "nvidia"]
    return "\n".join(f"{file.path} {file.places[0]}" for file in files if file.path.startswith("lib/"))


@pytest.mark.parametrize(("platform", "cuda"), [("win-x64", "12.9"), ("linux-x64", "13.0")])
def test_each_platform_and_cuda_has_its_own_names(platform: str, cuda: str, told: Told) -> None:
    """The values are those of ``unzip -l`` of the wheels for Windows of CUDA 12.9 and cuDNN 9.10.2, and of
    the wheels of CUDA 13.0 and cuDNN 9.16.0."""
    told(libraries_of(platform, cuda))


def test_cuda_13_has_the_same_libraries_for_arm_and_none_for_windows(refused: Refused) -> None:
    assert libraries_of("linux-arm64", "13.0") == libraries_of("linux-x64", "13.0")
    with refused(ValidationError):
        libraries_of("win-x64", "13.0")
