from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.core.content import wanted
from builder.core.package import Digest, Member
from builder.core.untouched import check_untouched, read_record
from builder.errors import IntegrityError, ValidationError
from tests.packages import plan

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


def test_a_record_is_read_as_the_real_ones_are_written() -> None:
    """The first row is of cuDNN 9.10.2.21, and the hex what ``sha256sum`` says of that file."""
    record = (
        "nvidia/cudnn/include/cudnn.h,sha256=EILVHTtWS6zo72_G7jNbZosr-lF_V8Bu_UKCY-XCGFU,2841\n"
        '"odd, name",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n'
        "x.dist-info/RECORD,,\n"
    )
    assert read_record(record, "x") == {
        "nvidia/cudnn/include/cudnn.h": "1082d51d3b564bace8ef6fc6ee335b668b2bfa517f57c06efd428263e5c21855",
        "odd, name": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }


@pytest.mark.parametrize("text", ["md5=abcd", "sha256=short", "sha256=", "sha256=\N{REPLACEMENT CHARACTER}"])
def test_a_row_without_a_sha256_is_named_with_its_wheel(text: str) -> None:
    with pytest.raises(IntegrityError, match=r"x\.whl: RECORD has no sha256 for p/a: "):
        read_record(f"p/a,{text},6\n", "x.whl")


ORT = "wheel:onnxruntime-gpu==1.21.0"


def member(path: str, source: str, vendor: str, *, modified: bool = False) -> Member:
    return Member(path, Path("/x"), source, "LICENSE", vendor, modified)


@pytest.mark.parametrize(
    ("vendor", "source", "same", "modified", "found"),
    [
        ("nvidia", "wheel:nvidia-x==1", True, False, False),
        ("nvidia", "wheel:nvidia-x==1", False, False, True),
        ("nvidia", "wheel:nvidia-x==1", True, True, True),
        ("onnxruntime", ORT, True, False, False),
        ("onnxruntime", ORT, False, False, True),
        ("onnxruntime", ORT, False, True, False),  # RUNPATH was set on a copy
        ("onnxruntime", "built", False, False, False),
    ],
)
def test_every_unmodified_file_of_a_wheel_must_be_in_its_record(
    vendor: str, source: str, same: bool, modified: bool, found: bool
) -> None:
    record = "lib/x.so,sha256=WJG1tSLV3whtD_CxEPvZ0hu0_HFjrzTQgoai6Eb2vgM,6\n"
    hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"  # the same in hex
    digests = {"lib/x.so": Digest(6, hello if same else "0" * 64)}
    asked = member("lib/x.so", source, vendor, modified=modified)
    findings = check_untouched([asked], digests, lambda source: record)
    assert [finding.code.name for finding in findings] == (["B001"] if found else [])
