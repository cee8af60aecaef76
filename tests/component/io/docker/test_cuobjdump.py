"""Tests of the container's script, run in a real sh, with a cuobjdump of the test on its PATH."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder.errors import CommandError, ToolMissingError
from builder.io.docker.cuobjdump_container import ContainerInspector
from builder.io.docker.engine import OVERTIME, ContainerRun
from builder.io.process import Completed
from tests.support.fakes.ports import FakeEngine
from tests.support.messages import Refused

ANSWERS = """
case $1 in
--list-elf) echo "ELF file    1: x.1.sm_50.cubin"; echo "a warning" >&2; exit 0;;
--list-ptx) echo "cuobjdump info    : File '$2' does not contain device code" >&2; exit 255;;
esac
"""


@dataclass
class ShellEngine(FakeEngine):
    """An engine that runs the container's command on this machine with ``path`` as PATH."""

    path: str = ""
    ran: list[ContainerRun] = field(default_factory=list)

    def run(self, request: ContainerRun) -> Completed:
        self.ran.append(request)
        done = subprocess.run(
            request.argv, env={"PATH": self.path}, capture_output=True, text=True, check=False
        )
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


SHA256 = "ab" * 32

ONE_CODE = "\n@@ elf.code\n0\n"
"""The beginning of a container's answer."""

Make = Callable[[str | None], tuple[ContainerInspector, ShellEngine]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "libx.so"
    file.write_bytes(b"some bytes")
    return file


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def inspector(script: str | None) -> tuple[ContainerInspector, ShellEngine]:
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        if script is not None:
            (programs / "cuobjdump").write_text("#!/bin/sh\n" + script)
            (programs / "cuobjdump").chmod(0o755)
        engine = ShellEngine(path=f"{programs}:/usr/bin:/bin")
        return ContainerInspector(engine, "ortpacks-toolchain", "12.4.131", tmp_path / "cache"), engine

    return inspector


def test_both_listings_with_their_own_exit_codes_and_streams(make: Make, library: Path) -> None:
    inspector, engine = make(ANSWERS)
    elf, ptx = inspector.list_images(library, SHA256)
    assert (elf.code, elf.stderr.strip()) == (0, "a warning")
    assert elf.stdout.strip() == "ELF file    1: x.1.sm_50.cubin"
    assert (ptx.code, ptx.stdout.strip()) == (255, "")
    assert ptx.stderr.strip() == "cuobjdump info    : File '/inspect/libx.so' does not contain device code"
    assert [run.files for run in engine.ran] == [{"/inspect/libx.so": library}]


def test_an_answer_is_kept_by_content(make: Make, library: Path) -> None:
    inspector, engine = make(ANSWERS)
    first = inspector.list_images(library, SHA256)
    assert inspector.list_images(library, SHA256) == first
    assert len(engine.ran) == 1
    inspector.list_images(library, "cd" * 32)
    assert len(engine.ran) == 2


def test_a_failure_is_an_answer_that_is_not_kept(make: Make, library: Path) -> None:
    inspector, engine = make("echo 'ELF file    1: x.1.sm_50.cubin'; echo 'fatal : Invalid ELF' >&2; exit 1")
    assert inspector.list_images(library, SHA256)[0].code == 1
    inspector.list_images(library, SHA256)
    assert len(engine.ran) == 2


def test_a_damaged_answer_is_asked_again(make: Make, library: Path, tmp_path: Path) -> None:
    inspector, engine = make(ANSWERS)
    first = inspector.list_images(library, SHA256)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_text(kept.read_text()[:20])
    assert inspector.list_images(library, SHA256) == first
    assert len(engine.ran) == 2
    assert set(json.loads(kept.read_text())) == {"elf", "ptx"}
    assert not list((tmp_path / "cache").rglob("*.part-*"))


def test_two_threads_may_keep_the_same_answer(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ["elf.code\n0", "elf.out", "elf.err", "ptx.code\n255", "ptx.out", "ptx.err", "end"]
    stdout = "".join(f"\n@@ {part}\n" for part in parts)
    engine = FakeEngine(answer=Completed(code=0, stdout=stdout, stderr=""))
    monkeypatch.setattr(os, "fsync", lambda descriptor: time.sleep(0.05))
    inspector = ContainerInspector(engine, "image", "12.4.131", tmp_path / "cache")
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(inspector.list_images, [library, library], [SHA256, SHA256])
    assert one == two
    assert [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [".json"]


def test_no_cuobjdump_in_the_image_says_so(make: Make, library: Path) -> None:
    inspector, _ = make(None)
    with pytest.raises(ToolMissingError, match="ortpacks-toolchain has no cuobjdump"):
        inspector.list_images(library, SHA256)


@pytest.mark.parametrize(("code", "stdout"), [*((code, ONE_CODE) for code in (137, OVERTIME, 0)), (0, "")])
def test_a_container_that_ends_early_is_no_answer(
    library: Path, tmp_path: Path, refused: Refused, code: int, stdout: str
) -> None:
    engine = FakeEngine(answer=Completed(code=code, stdout=stdout, stderr="Killed"))
    with refused(CommandError):
        ContainerInspector(engine, "image", "12.4.131", tmp_path / "cache").list_images(library, SHA256)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kept", ["", ONE_CODE])
def test_output_that_the_engine_lost_is_asked_for_again(make: Make, library: Path, kept: str) -> None:
    """Docker 26 on a busy machine: exit code 0, no output, and "stream copy error" in the engine's log."""
    inspector, engine = make(ANSWERS)
    whole, answers = engine.run, [Completed(code=0, stdout=kept, stderr="")]
    engine.run = lambda request: answers.pop() if answers else whole(request)  # type: ignore[method-assign]
    elf, _ = inspector.list_images(library, SHA256)
    assert (elf.code, elf.stdout) == (0, "ELF file    1: x.1.sm_50.cubin\n\n")
