"""Tests of the key of compiled libraries: it changes with every input that can change the compiled bytes."""

from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.artifact import artifact_key
from builder.config.inputs import DebianPackage, Input, Lock, Pin
from tests.support.factories.rendered import CUDNN, NVCC, RE2, RENDERED
from tests.support.tables import table

LIBC = DebianPackage("pool/main/g/glibc/libc6_2.36-9_amd64.deb", "libc6", "2.36-9", "amd64", "a" * 64)


def key(context: Path, *system: DebianPackage) -> str:
    return artifact_key(replace(RENDERED, system=system), Lock(pins={}), context)


def test_another_package_of_the_root_file_system_makes_another_key(tmp_path: Path) -> None:
    """The manifest records the revision of the root file system in which ONNX Runtime was compiled."""
    newer = replace(LIBC, path=LIBC.path.replace("36-9", "36-10"), version="2.36-10", sha256="b" * 64)
    assert key(tmp_path, LIBC) == key(tmp_path, LIBC)
    assert len({key(tmp_path), key(tmp_path, LIBC), key(tmp_path, newer)}) == 3


@pytest.mark.parametrize(("file", "counts"), table("compile/counted.txt"))
def test_programs_and_patches_make_another_key(tmp_path: Path, file: str, counts: str) -> None:
    before = key(tmp_path)
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text("1")
    assert (key(tmp_path) != before) is (counts == "yes")


def test_another_dockerfile_makes_another_key(tmp_path: Path) -> None:
    other = replace(RENDERED, dockerfile="FROM debian AS artifact\n")
    assert artifact_key(other, Lock(pins={}), tmp_path) != key(tmp_path)


@pytest.mark.parametrize("item", [NVCC, RE2, CUDNN])
def test_an_input_of_other_bytes_makes_another_key(tmp_path: Path, item: Input) -> None:
    locks = (Lock(pins={item.key: Pin(sha256=digit * 64)}) for digit in "ab")
    assert len({artifact_key(RENDERED, lock, tmp_path) for lock in locks}) == 2
