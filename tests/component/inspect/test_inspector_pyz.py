"""Tests of ``ortpacks-inspect.pyz`` on every supported Python with only the standard library."""

import errno
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from backports.zstd import compress

from builder.inspect.__main__ import main
from builder.io.archive.client_zipapp import build_inspector
from tests.support import ROOT, ran, written
from tests.support.factories.archives import files, zipped
from tests.support.factories.binaries import PTX, SASS, container, elf, image, sass
from tests.support.factories.project_copy import Place
from tests.support.pythons import one_of
from tests.support.tables import table

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


@pytest.fixture(scope="session")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_inspector(ROOT, tmp_path_factory.mktemp("inspector") / "ortpacks-inspect.pyz")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    library = elf({".nv_fatbin": container(image(SASS, 75), image(PTX, 75))})
    name = "a-1.0-py3-none-any.whl"
    return written(tmp_path, {name: zipped({"a/libgpu.so": library})}) / name


def run(
    python: str, inspector: Path, *argv: object, path: str = "/nonexistent"
) -> subprocess.CompletedProcess[str]:
    """Run the inspector without installed packages, with every warning as an error."""
    return ran([python, "-W", "error", "-I", "-S", inspector, *map(str, argv)], env={"PATH": path})


@pytest.mark.parametrize("version", VERSIONS)
def test_it_says_on_every_python_what_the_verb_says(
    version: str, inspector: Path, wheel: Path, copied: Place, tmp_path: Path
) -> None:
    python = one_of(version)
    file = tmp_path / "f.sarif"

    def messages(code: int, *words: object) -> list[str]:
        done = run(python, inspector, wheel, *words)
        verb = copied.run("inspect", str(wheel), *map(str, words))
        assert (done.returncode, done.stdout) == (code, verb.stdout), done.stderr
        return done.stderr.splitlines()

    messages(0, "--sizes", "--require", "7.5,12.0", "--jit-ok")
    messages(0, wheel, "--diff")
    *_, told = messages(6, "--json", "--require", "7.5,8.6", "--sarif", file)
    assert told.startswith(f"A009 {wheel} on 8.6: by JIT alone")
    assert len(json.loads(file.read_text())["runs"][0]["results"]) == 1


def test_an_older_python_is_told(inspector: Path) -> None:
    done = run(one_of("3.9"), inspector, "x")
    assert (done.returncode, done.stderr.split(", this")[0]) == (
        1,
        "ortpacks-inspect needs Python 3.10 or newer",
    )


@pytest.mark.parametrize("program", [True, False])
def test_zstd_needs_a_python_or_a_program(inspector: Path, tmp_path: Path, program: bool) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this Python reads zstd")
    source = tmp_path / "libs.tar.zst"
    source.write_bytes(compress(files({"libgpu.so": elf({".nv_fatbin": sass(75)})})))
    if program:
        (tmp_path / "zstd").symlink_to(shutil.which("zstd") or pytest.skip("needs zstd"))
    done = run(sys.executable, inspector, source, path=str(tmp_path))
    assert "images packed with zstd are assumed to hold code" in done.stderr
    if program:
        assert done.returncode == 0
        assert "libgpu.so" in done.stdout
    else:
        assert done.returncode == 4
        assert "error: Nothing here can unpack zstd. Install one of: the program zstd" in done.stderr


@pytest.mark.parametrize(("words", "said"), table("inspect/words.txt"))
def test_bad_words_are_told(capsys: pytest.CaptureFixture[str], wheel: Path, words: str, said: str) -> None:
    assert main([str(wheel), *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")


def test_the_same_sources_give_the_same_bytes_of_ours_alone(inspector: Path, tmp_path: Path) -> None:
    again = build_inspector(ROOT, tmp_path / "again.pyz")
    assert again.read_bytes() == inspector.read_bytes()
    with zipfile.ZipFile(inspector) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"__main__.py", "builder"}
    assert not [
        name for name in names if name.startswith(("builder/build/", "builder/io/wiring", "builder/client"))
    ]


def test_without_a_folder_for_temporary_files_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wheel: Path
) -> None:
    """A container with a read-only root has none."""

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    assert main([str(wheel)]) == 11
    said = capsys.readouterr().err
    assert "No usable temporary directory found in ['/tmp']. Set TMPDIR to a folder" in said
