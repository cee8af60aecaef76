"""Tests of gathering a package's files from wheels and compiled libraries; a missing file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.contents.required_files import required_files
from builder.errors import IntegrityError
from builder.formats.package_names import Host
from builder.package.bundle import locate
from tests.support.factories.packages import Trees, artifact, official, plan


def sources(tmp_path: Path, **changes: object) -> dict[str, str]:
    made = plan(**changes)
    members = locate(required_files(made), Trees(tmp_path / "trees").lay(), artifact(tmp_path / "artifact"))
    return {member.path: member.source for member in members}


def test_compiled_files_come_from_the_artifact_and_the_rest_from_their_wheels(tmp_path: Path) -> None:
    found = sources(tmp_path)
    assert found["lib/libonnxruntime.so.1"] == "wheel:onnxruntime-gpu==1.21.0"
    assert {path for path, source in found.items() if source == "built"} == {
        "lib/libonnxruntime_providers_cuda.so",
        "lib/libonnxruntime_providers_shared.so",
    }
    assert found["licenses/nvidia-cuda.txt"] == "wheel:nvidia-cuda-runtime-cu12==12.9.79"


def test_each_file_of_a_wheel_knows_its_place_there(tmp_path: Path) -> None:
    members = locate(required_files(plan()), Trees(tmp_path / "trees").lay(), artifact(tmp_path / "artifact"))
    places = {member.path: member.member for member in members}
    assert places["lib/libcudnn.so.9"] == "nvidia/cudnn/lib/libcudnn.so.9"
    assert places["lib/libonnxruntime.so.1"] == "onnxruntime/capi/libonnxruntime.so.1.21.0"
    assert places["lib/libonnxruntime_providers_cuda.so"] is None


@pytest.mark.parametrize("name", ["libonnxruntime.so.1", "libonnxruntime.so.1.21.0"])
def test_a_compiled_host_library_is_taken_under_either_name(tmp_path: Path, name: str) -> None:
    folder = artifact(tmp_path / "artifact")
    for file in (name, "LICENSE", "ThirdPartyNotices.txt"):
        (folder / file).write_bytes(file.encode())
    made = plan(host=Host.SOURCE)
    found = {
        member.path: member
        for member in locate(required_files(made), Trees(tmp_path / "trees").lay(), folder)
    }
    host = found["lib/libonnxruntime.so.1"]
    assert (host.source, host.file) == ("built", folder / name)
    assert found["licenses/onnxruntime.txt"].file == folder / "LICENSE"
    assert found["licenses/onnxruntime-third-party.txt"].file == folder / "ThirdPartyNotices.txt"
    assert {one.source for one in found.values() if "onnxruntime" in one.source} == set()


def test_links_are_followed_to_the_bytes(tmp_path: Path) -> None:
    tree = Trees(tmp_path / "trees").lay()
    library = tmp_path / "trees/nvidia-cufft-cu12==11.4.1.4/nvidia/cufft/lib/libcufft.so.11"
    real = library.rename(library.with_name("libcufft.so.11.4.1.4"))
    library.symlink_to(real.name)
    members = locate(required_files(official()), tree, None)
    assert next(member.file for member in members if member.path == "lib/libcufft.so.11") == real


def test_every_missing_empty_and_dangling_file_is_named_with_who_needs_it(tmp_path: Path) -> None:
    tree = Trees(tmp_path / "trees").lay()
    root = tmp_path / "trees"
    (root / "nvidia-cuda-nvrtc-cu12==12.9.86/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9").unlink()
    (root / "nvidia-curand-cu12==10.3.10.19/nvidia/curand/lib/libcurand.so.10").write_bytes(b"")
    loop = root / "nvidia-cudnn-cu12==9.10.2.21/nvidia/cudnn/lib/libcudnn_ops.so.9"
    loop.unlink()
    loop.symlink_to(loop.name)
    with pytest.raises(IntegrityError) as error:
        locate(required_files(plan()), tree, None)
    told = str(error.value).splitlines()
    assert [line.split(" ")[0].rsplit("/", maxsplit=1)[-1] for line in told] == [
        "libcudnn_ops.so.9",
        "libcurand.so.10",
        "libnvrtc-builtins.so.12.9",
        "libonnxruntime_providers_cuda.so",
        "libonnxruntime_providers_shared.so",
    ]
    assert "leads nowhere" in told[0]
    assert "is empty; lib/libcurand.so.10: libonnxruntime_providers_cuda.so needs it" in told[1]
    assert "libnvrtc.so.12 opens it" in told[2]
    assert "what the compile stage left (no folder)" in told[3]
