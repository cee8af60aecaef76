"""Tests of what ``compile --arch`` stores and of a build from a store, with real tools, profile minimal."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder.compile.compile_cache import CompileCache, CompileCaches, compile_cache
from tests.integration.machines import Machine, Watching, record
from tests.support.fakes.verbs import invoke

LEGACY = ("--variant", "legacy", "--profile", "minimal", "--base", "assembled")

UNIT = (
    "CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/onnxruntime/core/providers/cuda/math/"
    "unary_elementwise_ops_impl.cu.o"
)
"""The CUDA unit of profile minimal."""

PIECES = "ccache-pieces.log"

SET = "60", "61", "70"

THREE_CODES = r"""
printf '\tsm_60 sm_61:compute_60 sm_70\t2\n' >/src/parts.tsv
sed -i '/^build .*\.cu\.o: /s/ ||.*//' /build/build.ninja # the unit includes nothing that protoc makes
""".lstrip()
"""Shell commands that reduce the variant's set to ``SET``, and the compile to ``UNIT`` alone."""


def test_a_compile_that_goes_on_gives_a_whole_store(tmp_path: Path) -> None:
    def ahead(into: Path) -> set[str]:
        """Compile one architecture and return the names of the files that the compile adds to ``into``."""
        done = invoke("compile", *LEGACY, "--arch", "52", "--into", into, "--dist", tmp_path / "dist")
        assert done.returncode == 0, done.stdout + done.stderr
        return files(into)

    ahead(tmp_path / "with-tools")  # the compile of a new tree includes protoc
    first = ahead(tmp_path / "store")
    assert len(first) == 6, "text, PTX and SASS of the one unit, each with its manifest"
    again = ahead(tmp_path / "again")
    assert again == first, "although Ninja had all objects"


@dataclass(frozen=True)
class Compiled:
    """The unit's object as a new machine made it, and what it found in ccache of each device code."""

    code: bytes
    found: dict[str, list[str]]
    """ccache's results for the PTX (by its text) and the SASS (by its PTX), by what they were made from."""
    units_found: int


def compiled(machine: Machine, store: Path) -> Compiled:
    """Compile the whole set on a new machine from a store."""
    caches = CompileCaches(ahead=folder_cache(store))
    made = machine.compile(caches, Watching(), UNIT, before=THREE_CODES, keep=(UNIT, PIECES))
    log = (made / PIECES).read_text(encoding="utf-8")
    results: dict[str, list[str]] = {}
    for made_from, result in re.findall(rf"^# {UNIT}\.pieces/(compute_\S+)\n(\w+)$", log, re.MULTILINE):
        results.setdefault(made_from, []).append(result)
    return Compiled((made / Path(UNIT).name).read_bytes(), results, record(made).cache_hits)


def test_device_code_that_a_machine_for_each_architecture_stored_is_not_compiled_again(
    machine: Callable[[], Machine], tmp_path: Path
) -> None:
    """Each machine is new, so only the store can answer; that of the machine without one is empty."""
    merged, empty = tmp_path / "merged", tmp_path / "empty"
    empty.mkdir()
    for arch in SET:
        store = tmp_path / arch
        caches = CompileCaches(into=folder_cache(store))
        machine().compile(caches, Watching(), UNIT, before=THREE_CODES, ahead=(arch,))
        assert len(files(store)) == 6, "text, PTX and SASS, each with its manifest"
        shutil.copytree(store, merged, dirs_exist_ok=True)
    assert len(files(merged)) == 14, "60 and 61 have their text and PTX in common"
    code = {"compute_60.ii": 1, "compute_60/ptx": 2, "compute_70.ii": 1, "compute_70/ptx": 1}
    at_once, taken = compiled(machine(), empty), compiled(machine(), merged)
    assert (at_once.units_found, taken.units_found) == (0, 1)
    assert at_once.found == {made_from: ["cache_miss"] * number for made_from, number in code.items()}
    assert taken.found == {made_from: ["direct_cache_hit"] * number for made_from, number in code.items()}
    assert taken.code == at_once.code


def folder_cache(store: Path) -> CompileCache:
    return compile_cache(str(store), "test", {})


def files(store: Path) -> set[str]:
    return {file.name for file in store.rglob("*") if file.is_file()}
