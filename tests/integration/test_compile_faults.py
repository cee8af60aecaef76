"""Tests of faults in a real compile: a compiler that crashes or is killed, and a stale patch.

All tests share one Ninja tree, whose record counts the units that are kept and compiled again.
"""

import json
import random
import re
import signal
import time
import zlib
from pathlib import Path

import pytest

from tests.integration.faults_run import Run, promised
from tests.integration.faults_world import NO_OBJECTS, copy_for_compiling, replace
from tests.support import ROOT

pytestmark = pytest.mark.thorough

CUDA_UNIT = "unary_elementwise_ops_impl.cu"
"""Name of the only CUDA unit of profile minimal."""
STALE = """\
--- a/onnxruntime/core/providers/cuda/gpu_data_transfer.cc
+++ b/onnxruntime/core/providers/cuda/gpu_data_transfer.cc
@@ -48,3 +48,3 @@
     // copying between cpu memory
-    ORT_ENFORCE(target != source);
+    ORT_ENFORCE(dst_data != src_data && "patched by a test");
     memcpy(dst_data, src_data, bytes);
"""
"""Patch that removes a line which the source lacks; differences in context lines alone would be tolerated."""
MINUTES_15 = 900
NINJA = re.compile(r" \[(\d+)/(\d+)\] ")
DRIVE = "python3 -m builder.farm.drive"
FRESHEN = "python3 -m builder.farm.freshen"


class World:
    """A copy of the project for one architecture, with a Ninja tree of its own, empty at first.

    The machine's ccache, which has the host units of ``legacy_package``, is read and not written. The CUDA
    unit includes a header of this test, so ccache has no piece of this unit.
    """

    def __init__(self, folder: Path) -> None:
        self.project, self.dist = folder / "project", folder / "dist"
        copy_for_compiling(self.project, f"ortpacks-compile-faults-{zlib.crc32(bytes(ROOT)):08x}")
        self.variants = self.project / "variants.yaml"
        self.template = self.project / "templates/variant.Dockerfile.j2"
        now = time.time_ns()
        empty = f"[ -e /build/{now} ] || {{ {NO_OBJECTS} && touch /build/{now}; }}"
        replace(self.template, "--learned /ccache/", "--learned /build/")
        header = f"echo 'extern int trial_{now};' >/src/trial.h"
        replace(self.template, 'set(CMAKE_CUDA_FLAGS "', 'set(CMAKE_CUDA_FLAGS "-include /src/trial.h ')
        replace(self.template, FRESHEN, f"export CCACHE_READONLY=1\n{header}\n{empty}\n{FRESHEN}")
        self._pure = {path: path.read_text() for path in (self.variants, self.template)}

    def plant(self, name: str) -> None:
        """Let nvcc's code generator end by a signal; the toolchain's hash and so cache keys stay equal."""
        cicc = "/usr/local/cuda/nvvm/bin/cicc"
        replace(self.template, DRIVE, f"printf '#!/bin/sh\\nkill -{name} $$\\n' >{cicc}\n{DRIVE}")

    def patch(self, name: str, text: str) -> None:
        """Add a patch of ORT's source and name it in ``variants.yaml``."""
        (self.project / "patches" / name).write_text(text)
        replace(self.variants, "    patches:\n", f"    patches:\n      - patches/{name}\n")

    def heal(self) -> None:
        """Undo ``plant`` and ``patch``."""
        for path, text in self._pure.items():
            path.write_text(text)

    def fails(self) -> str:
        """Run a build, which must end with exit code 5, and return its output."""
        run = Run(self.dist, root=self.project)
        assert run.wait(timeout=MINUTES_15) == 5, run.text
        assert "Traceback" not in run.text
        return run.text

    def builds(self) -> str:
        """Run a build, which must succeed, and return its output."""
        run = Run(self.dist, root=self.project)
        assert run.wait(timeout=MINUTES_15) == 0, run.text
        return run.text

    def is_killed(self) -> None:
        """Run a build and kill it at random after a tenth of the work and the planted unit's failure."""
        run = Run(self.dist, root=self.project)
        run.until(" units to compile", timeout=MINUTES_15)
        log = self.dist / "legacy/build.log"
        while not any(10 * int(done) >= int(total) for done, total in NINJA.findall(log.read_text())):
            assert run.goes_on, run.text
            time.sleep(0.1)
        while not self.has_failed():
            assert run.goes_on, run.text
            time.sleep(0.05)
        time.sleep(random.uniform(0, 3))  # noqa: S311 - the moment is no secret
        run.signal(signal.SIGKILL, group=True)
        run.wait()

    def has_failed(self) -> bool:
        """Return whether the log has a failed unit; a failure during the kill may be missing."""
        log = (self.dist / "legacy/build.log").read_text()
        return re.search(r"^#\d+ \S+ FAILED: ", log, re.MULTILINE) is not None

    def record(self) -> dict[str, int]:
        """Return the numbers of units and compilations in the tree so far."""
        return json.loads((self.dist / "legacy/artifact/record.json").read_text())  # type: ignore[no-any-return]

    def packages(self) -> dict[str, str]:
        """Return the sha256 of the packages in ``dist`` by name, without files that contain times."""
        return {name: sha for name, sha in promised(self.dist).items() if name.endswith(".tar.zst")}


@pytest.fixture(scope="module")
def world(legacy_package: Path, module_folder: Path) -> World:
    assert legacy_package.exists(), "built, so its units are in the cache"
    return World(module_folder)


def to_compile(text: str) -> int:
    """Return the number of units to compile that a build printed last."""
    return int(re.findall(r"(\d+) units to compile", text)[-1])


def the_failure(text: str) -> list[str]:
    """Return the error's lines, from the failed unit on."""
    lines = text[text.index("error: ") :].splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("FAILED ")) :]


def test_a_unit_that_fails_is_shown_and_all_others_are_kept(world: World) -> None:
    world.plant("SEGV")
    world.is_killed()
    text = world.fails()
    unit, command, *rest = the_failure(text)
    assert unit.endswith(f"/{CUDA_UNIT}.o")
    assert "nvcc " in command
    assert f"/{CUDA_UNIT} -o " in command
    assert "nvcc: cicc died due to signal 11 (Segmentation fault)" in rest
    assert "ortpacks: 1 of the units failed; all others are finished and kept for the next run" in rest
    assert rest[-1].startswith("A compiler crashed. Run the same command again")

    world.heal()
    world.plant("KILL")
    text = world.fails()
    assert to_compile(text) == 1, "the others are finished"
    unit, command, *rest = the_failure(text)
    assert unit.endswith(f"/{CUDA_UNIT}.o")
    assert "nvcc: cicc died due to signal 9 (Killed)" in rest
    assert "ran out of memory" in rest[-1]
    assert "with --jobs, and half as many as ran at a time" in rest[-1]
    assert world.packages() == {}

    world.heal()
    text = world.builds()
    assert to_compile(text) == 1
    record = world.record()
    assert record["units"] > 20
    assert record["compilations"] - record["units"] == 3, "the planted unit's failures: all others once"
    assert len(world.packages()) == 2


def test_a_patch_that_does_not_apply_is_named_with_its_key(world: World) -> None:
    world.heal()
    world.patch("stale.patch", STALE)
    text = world.fails()
    assert "ortpacks: bases.assembled.patches: stale.patch does not apply to ORT 1.21.0" in text
    assert "1 out of 1 hunk FAILED" in text, "patch's own words"
    assert "Make the patch anew" in text.splitlines()[-1]
