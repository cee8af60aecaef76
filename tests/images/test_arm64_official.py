"""Tests of the official GPU wheel for ARM under an emulator: loading its libraries, and MiniLM on the CPU.

The emulator is Debian 13's QEMU, which gives programs an ARM machine's /proc/cpuinfo. With the host's, which
Debian 12's QEMU gives, the CPU detection of ONNX Runtime 1.31.1 ends by SIGSEGV.
"""

import json
import subprocess
from pathlib import Path

import pytest

from builder.config.inputs import SELFTEST_TRANSFORMER, ort_wheel
from builder.contents.rules.dependencies import check_ldd, waits_for_driver
from builder.io.wiring import Wiring
from builder.prove.sample_models import minilm
from tests.elsewhere import embed_by_c_api
from tests.support import ROOT, ran
from tests.support.debian import debian_program
from tests.support.sentences import SIMILARITIES

pytestmark = pytest.mark.thorough

VERSION = "1.31.1"


@pytest.fixture(scope="module")
def emulated(module_folder: Path) -> tuple[list[str | Path], Path]:
    """Return the command that runs a program of a slim Debian for ARM, and the root folder of this system."""
    wiring, root = Wiring(ROOT), module_folder
    suite, packages = wiring.project.image.suite, wiring.project.image.packages
    tar = wiring.rootfs(wiring.reporter).slim(suite, list(packages), "arm64")
    subprocess.run(["tar", "--extract", f"--file={tar}", f"--directory={root}"], check=True)
    program = debian_program("qemu-user/trixie", "usr/bin/qemu-aarch64")
    return [program, "-L", root], root


@pytest.fixture(scope="module")
def libraries() -> Path:
    wiring = Wiring(ROOT)
    return wiring.store(wiring.lock).unpack(ort_wheel(VERSION, "linux-arm64")) / "onnxruntime/capi"


def test_the_loader_finds_all_but_cuda(emulated: tuple[list[str | Path], Path], libraries: Path) -> None:
    words, root = emulated
    trace = [*words, "-E", "LD_TRACE_LOADED_OBJECTS=1", root / "lib/ld-linux-aarch64.so.1"]
    listing = ""
    for library in sorted(libraries.glob("lib*.so*")):
        done = ran([*trace, library], check=True)
        lines = [line for line in done.stdout.splitlines(keepends=True) if "=>" in line]
        listing += "".join([f"ldd {library}\n", *lines])
    assert waits_for_driver(listing)
    found = check_ldd(listing, "p")
    absent = {"libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13", "libcurand.so.10"}
    assert {finding.wanted.removeprefix("lib/") for finding in found} == absent


def test_minilm_gives_the_numbers_of_its_documentation(
    emulated: tuple[list[str | Path], Path], libraries: Path, tmp_path: Path
) -> None:
    words, root = emulated
    wiring = Wiring(ROOT)
    model, rows = minilm(wiring.store(wiring.lock).unpack(SELFTEST_TRANSFORMER), wiring.cache / "made")
    inputs = tmp_path / "inputs.json"
    inputs.write_text(json.dumps({name: table.tolist() for name, table in rows.items()}))
    (library,) = libraries.glob("libonnxruntime.so.1*")
    argv = [*words, root / "usr/bin/python3.11", embed_by_c_api.__file__, ROOT, library, model, inputs]
    done = ran(argv, env={})
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["version"] == VERSION
    assert answer["products"] == pytest.approx(SIMILARITIES[0], abs=5e-4)
