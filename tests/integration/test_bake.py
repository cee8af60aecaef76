"""Test that plain ``docker buildx bake`` compiles from a folder of ``./run bake`` that was moved."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.fakes.verbs import invoke

pytestmark = pytest.mark.integration


def test_bake_makes_the_libraries_that_build_makes(legacy_package: Path, dist: Path, tmp_path: Path) -> None:
    assert legacy_package.exists()
    flags = ("--variant", "legacy", "--profile", "minimal", "--base", "assembled")
    done = invoke("bake", *flags, "--out", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    moved = (tmp_path / "here").rename(tmp_path / "there")
    argv = ["docker", "buildx", "bake", "--progress=plain", "--file=docker-bake.json"]
    baked = subprocess.run(argv, cwd=moved, capture_output=True, text=True, check=False)
    assert baked.returncode == 0, baked.stderr[-3000:]
    ours = {file.name: file.read_bytes() for file in (dist / "legacy/artifact").glob("*.so")}
    theirs = {file.name: file.read_bytes() for file in (moved / "legacy/artifact").glob("*.so")}
    assert len(ours) == 2
    assert theirs == ours
