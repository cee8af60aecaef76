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


def test_a_compiled_host_library_and_the_tensorrt_provider_cannot_be_together() -> None:
    with pytest.raises(ValidationError, match=r"onnxruntime\.tensorrt.*onnxruntime\.host"):
        required_files(with_tensorrt(plan(host=Host.SOURCE)))
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


def libraries_of(platform: str, cuda: str) -> dict[str, str]:
    """Return NVIDIA's libraries with their places in their wheels."""
    made = official()
    project = made.project
    changed = replace(
        made,
        project=replace(project, cuda=replace(project.cuda, version=cuda)),
        variant=replace(made.variant, platform=platform),
    )
    files = [
        file for file in required_files(changed) if file.vendor == "nvidia" and file.path.startswith("lib/")
    ]
    return {file.path.removeprefix("lib/"): file.places[0] for file in files}


def test_windows_has_its_own_names_and_no_curand() -> None:
    """The expected values are from ``unzip -l`` of the wheels for Windows of CUDA 12.9 and cuDNN 9.10.2."""
    found = libraries_of("win-x64", "12.9")
    assert len(found) == 14
    assert found["cudart64_12.dll"] == "nvidia/cuda_runtime/bin/cudart64_12.dll"
    assert found["nvrtc-builtins64_129.dll"] == "nvidia/cuda_nvrtc/bin/nvrtc-builtins64_129.dll"
    assert found["cudnn64_9.dll"] == "nvidia/cudnn/bin/cudnn64_9.dll"
    assert found["cudnn_engines_precompiled64_9.dll"] == "nvidia/cudnn/bin/cudnn_engines_precompiled64_9.dll"


@pytest.mark.parametrize("platform", ["linux-x64", "linux-arm64"])
def test_cuda_13_lies_in_one_folder(platform: str) -> None:
    """The expected values are from ``unzip -l`` of the wheels of CUDA 13.0 and cuDNN 9.16.0."""
    found = libraries_of(platform, "13.0")
    assert found["libcufft.so.12"] == "nvidia/cu13/lib/libcufft.so.12"
    assert found["libnvrtc-builtins.so.13.0"] == "nvidia/cu13/lib/libnvrtc-builtins.so.13.0"
    assert found["libcudnn_ops.so.9"] == "nvidia/cudnn/lib/libcudnn_ops.so.9"
    assert len(found) == 15


def test_a_cuda_that_nobody_looked_up_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"CUDA 13\.0 on win-x64: what NVIDIA's wheels for it hold"):
        libraries_of("win-x64", "13.0")


def test_nothing_of_a_package_that_is_compiled_whole_is_the_official_wheel_s() -> None:
    made = plan(host=Host.SOURCE)
    found = {file.path: file for file in required_files(made)}
    assert made.ort_wheel not in {file.source for file in found.values()}
    assert found["licenses/onnxruntime.txt"].places == ("LICENSE",)
    assert found["licenses/onnxruntime-third-party.txt"].places == ("ThirdPartyNotices.txt",)
