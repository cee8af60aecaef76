from __future__ import annotations

from dataclasses import replace

import pytest

from builder.core.content import is_users, wanted
from builder.core.variant import BuildPlan, Host
from builder.errors import ValidationError
from tests.packages import official, plan

LIBRARIES = [
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudart.so.12",
    "libcudnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_ops.so.9",
    "libcufft.so.11",
    "libcurand.so.10",
    "libnvrtc-builtins.so.12.9",
    "libnvrtc.so.12",
    "libonnxruntime.so.1",
    "libonnxruntime_providers_cuda.so",
    "libonnxruntime_providers_shared.so",
]


def test_a_package_holds_eighteen_libraries_and_the_licences_of_their_owners() -> None:
    paths = [file.path for file in wanted(plan())]
    assert [path.removeprefix("lib/") for path in paths if path.startswith("lib/")] == LIBRARIES
    assert [path for path in paths if not path.startswith("lib/")] == [
        "licenses/nvidia-cuda.txt",
        "licenses/nvidia-cudnn.txt",
        "licenses/onnxruntime-third-party.txt",
        "licenses/onnxruntime.txt",
    ]
    assert len({file.source for file in wanted(plan()) if file.source}) == 7


def test_a_role_that_variants_yaml_lacks_is_named_with_its_key() -> None:
    made = plan()
    libraries = {role: wheel for role, wheel in made.project.cuda.libraries.items() if role != "cufft"}
    project = replace(made.project, cuda=replace(made.project.cuda, libraries=libraries))
    with pytest.raises(ValidationError, match=r"cuda\.libraries\.cufft is missing.*libcufft\.so\.11"):
        wanted(replace(made, project=project))


TENSORRT = "lib/libonnxruntime_providers_tensorrt.so"


def with_tensorrt(made: BuildPlan) -> BuildPlan:
    return replace(
        made, project=replace(made.project, onnxruntime=replace(made.project.onnxruntime, tensorrt=True))
    )


@pytest.mark.parametrize("made", [plan(), official()])
def test_the_tensorrt_provider_is_the_official_wheel_s_whatever_is_compiled(made: BuildPlan) -> None:
    files = {file.path: file for file in wanted(with_tensorrt(made))}
    assert files.keys() - {file.path for file in wanted(made)} == {TENSORRT}
    assert files[TENSORRT].source == made.ort_wheel
    assert files[TENSORRT].places == ("onnxruntime/capi/libonnxruntime_providers_tensorrt.so",)
    assert files[TENSORRT].vendor == "onnxruntime"


def test_a_compiled_host_library_and_the_tensorrt_provider_cannot_be_together() -> None:
    with pytest.raises(ValidationError, match=r"onnxruntime\.tensorrt.*onnxruntime\.host"):
        wanted(with_tensorrt(plan(host=Host.SOURCE)))
    assert wanted(with_tensorrt(official(host=Host.SOURCE)))  # of a repacked wheel nothing is compiled


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
