"""Tests of the members found in an unpacked package and in a plain folder of libraries."""

from pathlib import Path

import pytest

from builder.errors import NothingToDoError
from builder.prove.verify import members_in


def _tree(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


def test_the_libraries_of_a_plain_folder(tmp_path: Path) -> None:
    folder = _tree(tmp_path, "libonnxruntime.so.1", "README", "include/onnx.h", "libcudart.so.12")
    assert [(member.path, member.vendor) for member in members_in(folder)] == [
        ("lib/libcudart.so.12", "nvidia"),
        ("lib/libonnxruntime.so.1", "onnxruntime"),
    ]


@pytest.mark.parametrize("names", [("README",), ("manifest.json", "licenses/a"), ("lib/sub/.keep",)])
def test_a_folder_without_any_library(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = _tree(tmp_path, *names)
    if names[0].startswith("lib/"):
        (folder / names[0]).unlink()
    with pytest.raises(NothingToDoError, match="No library in"):
        members_in(folder)
