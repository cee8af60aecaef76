"""Tests of ``compile --arch`` into a folder and of ``build --from`` it, with real tools, profile minimal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes.verbs import invoke

pytestmark = pytest.mark.integration

LEGACY = ("--variant", "legacy", "--profile", "minimal", "--base", "assembled")


def ahead(dist: Path, into: Path) -> set[str]:
    """Compile one architecture and return the names of the files that the compile adds to ``into``."""
    done = invoke("compile", *LEGACY, "--arch", "52", "--into", into, "--dist", dist)
    assert done.returncode == 0, done.stdout + done.stderr
    return {file.name for file in into.rglob("*") if file.is_file()}


def test_a_compile_that_goes_on_gives_a_whole_store_and_a_build_takes_it(
    legacy_package: Path, tmp_path: Path
) -> None:
    ahead(tmp_path / "one", tmp_path / "with-tools")  # the compile of a new tree includes protoc
    first = ahead(tmp_path / "one", tmp_path / "store")
    assert len(first) == 6, "text, PTX and SASS of the one unit, each with its manifest"
    again = ahead(tmp_path / "one", tmp_path / "again")
    assert again == first, "although Ninja had all objects"
    done = invoke("build", *LEGACY, "--from", tmp_path / "store", "--dist", tmp_path / "two")
    assert done.returncode == 0, done.stdout + done.stderr
    built = tmp_path / "two" / legacy_package.name
    assert built.read_bytes() == legacy_package.read_bytes()
