"""Tests of the key of compiled libraries: it changes with every input that can change the compiled bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builder.builds.artifact import artifact_key
from builder.project.inputs import DebianPackage, Lock
from tests.component.pipeline.test_compile import RENDERED

LIBC = DebianPackage(
    path="pool/main/g/glibc/libc6_2.36-9_amd64.deb",
    name="libc6",
    version="2.36-9",
    arch="amd64",
    sha256="a" * 64,
)


def key(context: Path, *system: DebianPackage) -> str:
    return artifact_key(replace(RENDERED, system=system), Lock(pins={}), context)


def test_another_package_of_the_root_file_system_makes_another_key(tmp_path: Path) -> None:
    """The manifest records the revision of the root file system in which ONNX Runtime was compiled."""
    newer = replace(LIBC, path=LIBC.path.replace("36-9", "36-10"), version="2.36-10", sha256="b" * 64)
    assert key(tmp_path, LIBC) == key(tmp_path, LIBC)
    assert len({key(tmp_path), key(tmp_path, LIBC), key(tmp_path, newer)}) == 3


def test_our_programs_make_another_key_and_the_costs_of_units_do_not(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    before = key(tmp_path)
    (tmp_path / "inside/costs.tsv").write_text("1")
    assert key(tmp_path) == before
    (tmp_path / "inside/narrow.py").write_text("1")
    assert key(tmp_path) != before
