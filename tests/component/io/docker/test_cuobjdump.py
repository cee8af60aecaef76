"""Tests of cuobjdump's listings, and of the container's script, which a real sh runs.

The texts were printed by cuobjdump 12.4.131 and 13.5.37 for real libraries and are shortened.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from builder.binary.fatbin import read_containers
from builder.contents import cuobjdump
from builder.errors import CommandError, ToolMissingError
from builder.io.docker.cuobjdump_container import ContainerInspector
from builder.io.docker.engine import OVERTIME, ContainerRun
from builder.io.process import Completed
from tests.support.factories.binaries import BLACKWELL, PTX, SASS, A, F, container, elf, image
from tests.support.fakes.ports import FakeEngine
from tests.support.messages import Refused, Told
from tests.support.tables import data_text

ANSWERS = data_text("programs/cuobjdump.sh")


SHA256 = "ab" * 32

ONE_CODE = "\n@@ elf.code\n0\n"
"""The beginning of a container's answer."""

Make = Callable[[str | None], tuple[ContainerInspector, FakeEngine]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "libx.so"
    file.write_bytes(b"some bytes")
    return file


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def inspector(script: str | None) -> tuple[ContainerInspector, FakeEngine]:
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        if script is not None:
            (programs / "cuobjdump").write_text("#!/bin/sh\n" + script)
            (programs / "cuobjdump").chmod(0o755)

        def run(request: ContainerRun) -> Completed:
            env = {"PATH": f"{programs}:/usr/bin:/bin"}
            # another run of the tests has files in /tmp too
            argv = [word.replace("/tmp/", f"{tmp_path}/") for word in request.argv]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
            return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

        engine = FakeEngine(on_run=run)
        return ContainerInspector(engine, "ortpacks-toolchain", "12.4.131", tmp_path / "cache"), engine

    return inspector


def test_both_listings_with_their_own_exit_codes_and_streams(make: Make, library: Path) -> None:
    inspector, engine = make(ANSWERS)
    elf, ptx = inspector.list_images(library, SHA256)
    assert (elf.code, elf.stderr.strip()) == (0, "a warning")
    assert elf.stdout.strip() == "ELF file    1: x.1.sm_50.cubin"
    assert (ptx.code, ptx.stdout.strip()) == (255, "")
    assert ptx.stderr.strip() == "cuobjdump info    : File '/inspect/libx.so' does not contain device code"
    assert [run.files for run in engine.runs] == [{"/inspect/libx.so": library}]


def test_an_answer_is_kept_and_a_damaged_one_made_again(make: Make, library: Path, tmp_path: Path) -> None:
    inspector, engine = make(ANSWERS)
    first = inspector.list_images(library, SHA256)
    assert inspector.list_images(library, SHA256) == first
    assert len(engine.runs) == 1
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_text(kept.read_text()[:20])
    assert inspector.list_images(library, SHA256) == first
    assert set(json.loads(kept.read_text())) == {"elf", "ptx"}
    inspector.list_images(library, "cd" * 32)
    assert len(engine.runs) == 3
    assert not list((tmp_path / "cache").rglob("*.part-*"))


def test_a_failure_is_an_answer_that_is_not_kept(make: Make, library: Path) -> None:
    inspector, engine = make("echo 'ELF file    1: x.1.sm_50.cubin'; echo 'fatal : Invalid ELF' >&2; exit 1")
    assert [inspector.list_images(library, SHA256)[0].code for _ in range(2)] == [1, 1]
    assert len(engine.runs) == 2


def test_no_cuobjdump_in_the_image_says_so(make: Make, library: Path) -> None:
    inspector, _ = make(None)
    with pytest.raises(ToolMissingError, match="ortpacks-toolchain has no cuobjdump"):
        inspector.list_images(library, SHA256)


@pytest.mark.parametrize(("code", "stdout"), [*((code, ONE_CODE) for code in (137, OVERTIME, 0)), (0, "")])
def test_an_early_end_is_told(
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
    whole, answers = engine.on_run, [Completed(code=0, stdout=kept, stderr="")]
    assert whole is not None
    engine.on_run = lambda request: answers.pop() if answers else whole(request)
    elf, _ = inspector.list_images(library, SHA256)
    assert (elf.code, elf.stdout) == (0, "ELF file    1: x.1.sm_50.cubin\n\n")


ELF = """ELF file    1: libcublas.so.1.sm_50.cubin
ELF file    2: libcublas.so.2.sm_60.cubin
ELF file    3: libcublas.so.3.sm_60.cubin
ELF file 1589: libcublas.so.1589.sm_90a.cubin
"""

PTX_TEXT = "PTX file    1: libcublas.so.1.sm_120.ptx\n"

NONE = "cuobjdump info    : File '/inspect/libcudart.so.12' does not contain device code\n"

NO_PTX = (
    "cuobjdump info    : No PTX file found to extract from '/inspect/x.so'. You may try with -all option.\n"
)

FATAL = "cuobjdump fatal   : Invalid ELF\n"


def _done(stdout: str = "", stderr: str = "", code: int = 0) -> cuobjdump.Listing:
    return cuobjdump.Listing(code=code, stdout=stdout, stderr=stderr)


def test_counts_by_architecture() -> None:
    found = cuobjdump.parse_listings(_done(ELF), _done(PTX_TEXT))
    assert {str(arch): count for arch, count in found.sass.items()} == {"50": 1, "60": 2, "90a": 1}
    assert {str(arch): count for arch, count in found.ptx.items()} == {"120": 1}


def test_no_device_code_and_no_ptx_are_answers() -> None:
    found = cuobjdump.parse_listings(_done(stderr=NONE, code=255), _done(stderr=NONE, code=255))
    assert (found.sass, found.ptx) == ({}, {})
    assert cuobjdump.parse_listings(_done(ELF), _done(stderr=NO_PTX)).ptx == {}


@pytest.mark.parametrize(
    ("elf_listing", "ptx_listing"),
    [
        (_done(ELF, FATAL, code=1), _done(PTX_TEXT)),
        (_done(ELF), _done(PTX_TEXT, code=137)),
        (_done(), _done(PTX_TEXT)),
        (_done(ELF), _done("\n \n")),
        (_done(ELF + FATAL + "more"), _done(PTX_TEXT)),
        (_done(stderr=NONE, code=255), _done(PTX_TEXT)),
        (_done(stderr="cuobjdump error: cannot open file", code=255), _done(PTX_TEXT)),
        (_done(stderr=NONE), _done(stderr=NONE)),
    ],
)
def test_all_else_is_none(elf_listing: cuobjdump.Listing, ptx_listing: cuobjdump.Listing, told: Told) -> None:
    with pytest.raises(cuobjdump.CuobjdumpError) as caught:
        cuobjdump.parse_listings(elf_listing, ptx_listing)
    told(caught.value)


def _native(*images: bytes) -> cuobjdump.ImageCounts:
    return cuobjdump.count_images(read_containers(elf({".nv_fatbin": container(*images)})))


def _listed(*arches: str) -> str:
    return "".join(f"ELF file    {i}: x.{i}.sm_{arch}.cubin\n" for i, arch in enumerate(arches, 1))


@pytest.mark.parametrize(
    ("images", "listed"),
    [
        (
            (*[image(SASS, 120, F | BLACKWELL)] * 2, image(SASS, 120), image(SASS, 90, A)),
            ("120", "120", "120", "90"),
        ),
        ([image(SASS, 60)] * 2, ("60", "60a")),
    ],
    ids=["dropped", "made up"],
)
def test_a_suffix_more_or_less_is_no_disagreement(images: Sequence[bytes], listed: Sequence[str]) -> None:
    """12.4 shows a suffix for five images of libcublas 12.9 that have none in their bytes or in
    13.5's listing."""
    found = cuobjdump.parse_listings(_done(_listed(*listed)), _done(stderr=NO_PTX))
    assert cuobjdump.disagreements(_native(*images), found) == []


def test_one_image_more_is_a_disagreement_with_both_counts(told: Told) -> None:
    native = _native(image(SASS, 50), image(PTX, 120))
    for ptx in (_done(PTX_TEXT), _done(stderr=NO_PTX)):
        told("\n".join(cuobjdump.disagreements(native, cuobjdump.parse_listings(_done(ELF), ptx))))
