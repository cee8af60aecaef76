"""Tests of ``compile --arch`` into a folder and of ``build --from`` it, with real tools, profile minimal."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.binary.library_names import PROVIDER
from tests.integration.faults_run import Run
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import manifest, sha256

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
    build = Run(tmp_path / "two", "legacy", "--from", str(tmp_path / "store"))
    build.until("^✓ compile legacy")
    Run.end_all()
    built = sha256(tmp_path / "two/legacy/artifact" / PROVIDER)
    packed = {file["path"]: file["sha256"] for file in manifest(legacy_package)["files"]}  # type: ignore[attr-defined]
    assert built == packed[f"lib/{PROVIDER}"]
