"""Tests of the files that a package must hold, against lists written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input
from builder.config.variants import Variant
from builder.contents.required_files import is_users, libraries, licences, required_files
from builder.errors import ValidationError
from builder.formats.package_names import Host
from tests.support.factories.packages import official, plan
from tests.support.messages import Told
from tests.support.real_packages import LIBRARIES


def test_a_package_holds_eighteen_libraries_and_the_licences_of_their_owners() -> None:
    paths = [file.path for file in required_files(plan())]
    assert [path.removeprefix("lib/") for path in paths if path.startswith("lib/")] == sorted(LIBRARIES)
    assert [path for path in paths if not path.startswith("lib/")] == [
        "licenses/nvidia-cuda.txt",
        "licenses/nvidia-cudnn.txt",
        "licenses/onnxruntime-third-party.txt",
        "licenses/onnxruntime.txt",
    ]
    assert len({file.source for file in required_files(plan()) if file.source}) == 7


ON_LINUX = {
    "lib/libonnxruntime.so.1": "onnxruntime/capi/libonnxruntime.so.1.23.2",
    "lib/libonnxruntime_providers_shared.so": "onnxruntime/capi/libonnxruntime_providers_shared.so",
}

REPACKED = {
    "linux-x64": ON_LINUX,
    "linux-arm64": ON_LINUX,
    "win-x64": {
        "lib/onnxruntime.dll": "onnxruntime/capi/onnxruntime.dll",
        "lib/onnxruntime_providers_shared.dll": "onnxruntime/capi/onnxruntime_providers_shared.dll",
    },
    "macos-arm64": {"lib/libonnxruntime.dylib": "onnxruntime/capi/libonnxruntime.1.23.2.dylib"},
}
"""Path in the package and in the wheel of the C libraries in the wheels of 1.23, by ``unzip -l``."""

TEXTS = {
    "licenses/onnxruntime-third-party.txt": "onnxruntime/ThirdPartyNotices.txt",
    "licenses/onnxruntime.txt": "onnxruntime/LICENSE",
}


@pytest.mark.parametrize(
    ("provider", "platform"),
    [
        ("cpu", "linux-x64"),
        ("cpu", "linux-arm64"),
        ("cpu", "win-x64"),
        ("cpu", "macos-arm64"),
        ("directml", "win-x64"),
        ("coreml", "macos-arm64"),
    ],
)
def test_a_package_without_cuda_holds_the_wheels_libraries_and_texts(provider: str, platform: str) -> None:
    wheel = Input.wheel("onnxruntime==1.23.2", platform)
    variant = Variant(provider, (), (), provider=provider, platform=platform, wheel=wheel)
    files = required_files(official(variant=variant, ort_version="1.23.2", ort_wheel=wheel))
    directml = {"lib/DirectML.dll": "onnxruntime/capi/DirectML.dll"} if provider == "directml" else {}
    places = {**REPACKED[platform], **directml, **TEXTS}
    assert places.items() <= {(file.path, place) for file in files for place in file.places}
    assert [file.path for file in files] == sorted(places)
    assert {file.source for file in files} == {wheel}
    assert {f"lib/{name}" for name in libraries(provider, platform)} == {*REPACKED[platform], *directml}


def test_every_package_carries_the_texts_of_whose_files_it_holds() -> None:
    always = {"LICENSE", "NOTICE", *TEXTS}
    assert set(licences("cpu")) == set(licences("coreml")) == always
    assert set(licences("directml")) == {*always, "licenses/directml.txt"}
    assert set(licences("cuda")) == {*always, "licenses/nvidia-cuda.txt", "licenses/nvidia-cudnn.txt"}


TENSORRT = "lib/libonnxruntime_providers_tensorrt.so"


def with_tensorrt(made: BuildPlan) -> BuildPlan:
    return replace(
        made, project=replace(made.project, onnxruntime=replace(made.project.onnxruntime, tensorrt=True))
    )


@pytest.mark.parametrize("made", [plan(), official()])
def test_the_tensorrt_provider_is_the_official_wheel_s_whatever_is_compiled(made: BuildPlan) -> None:
    files = {file.path: file for file in required_files(with_tensorrt(made))}
    assert files.keys() - {file.path for file in required_files(made)} == {TENSORRT}
    assert files[TENSORRT].source == made.ort_wheel
    assert files[TENSORRT].places == ("onnxruntime/capi/libonnxruntime_providers_tensorrt.so",)
    assert files[TENSORRT].vendor == "onnxruntime"


def test_a_compiled_host_library_and_the_tensorrt_provider_cannot_be_together(told: Told) -> None:
    with pytest.raises(ValidationError) as caught:
        required_files(with_tensorrt(plan(host=Host.SOURCE)))
    told(caught.value)
    assert required_files(with_tensorrt(official(host=Host.SOURCE)))  # a repacked wheel has no compiled files


@pytest.mark.parametrize(
    ("library", "needed", "users"),
    [
        ("libonnxruntime_providers_tensorrt.so", "libnvinfer.so.10", True),
        ("libonnxruntime_providers_tensorrt.so", "libnvinfer_plugin.so.10", True),
        ("libonnxruntime_providers_tensorrt.so", "libnvonnxparser.so.11", True),
        ("libonnxruntime_providers_tensorrt.so", "libnvinfer.so", False),
        ("libonnxruntime_providers_tensorrt.so", "libcudnn.so.9", False),
        ("libonnxruntime_providers_cuda.so", "libnvinfer.so.10", False),
    ],
)
def test_tensorrt_itself_is_the_user_s(library: str, needed: str, users: bool) -> None:
    assert is_users(library, needed) is users


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


def test_cuda_13_has_the_same_libraries_for_arm() -> None:
    assert libraries_of("linux-arm64", "13.0") == libraries_of("linux-x64", "13.0")


def test_a_cuda_that_nobody_looked_up_is_refused(told: Told) -> None:
    with pytest.raises(ValidationError) as caught:
        libraries_of("win-x64", "13.0")
    told(caught.value)


def test_nothing_of_a_package_that_is_compiled_whole_is_the_official_wheel_s() -> None:
    made = plan(host=Host.SOURCE)
    found = {file.path: file for file in required_files(made)}
    assert made.ort_wheel not in {file.source for file in found.values()}
    assert found["licenses/onnxruntime.txt"].places == ("LICENSE",)
    assert found["licenses/onnxruntime-third-party.txt"].places == ("ThirdPartyNotices.txt",)
