"""Tests of what a release has beside its packages: the same bytes from any clone, on any machine."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from builder.build.own_programs import RUNTIME, SERVICE
from tests.support import ROOT
from tests.support.factories.project_copy import copied_to
from tests.support.tables import data_text

MAKE = data_text("programs/make-release-tools.txt")

OTHER_ZLIB = """\
import zlib
real = zlib.compressobj
zlib.compressobj = lambda level=-1, *more, **named: real(1, *more, **named)
"""
"""A zlib that compresses to other bytes, as those of other distributions do."""


def made_in(folder: Path, dist: Path, umask: int, **env: str) -> dict[str, bytes]:
    """Return the files that a clone in ``folder`` makes, by name."""
    home = {name: os.environ[name] for name in ("PATH", "HOME")}
    subprocess.run(
        [sys.executable, "-c", MAKE, dist], cwd=folder, env={**home, **env}, umask=umask, check=True
    )
    return {file.name: file.read_bytes() for file in dist.iterdir()}


def cloned(folder: Path) -> Path:
    """Return ``folder``, into which what makes these files is copied."""
    folder.mkdir()
    copied_to(folder)
    for project in (RUNTIME, SERVICE):
        shutil.copytree(ROOT / project, folder / project, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_two_clones_make_the_same_files_whose_wheels_install_with_pip(tmp_path: Path) -> None:
    """The second has another folder, umask, time zone, locale and zlib, and other modes and times."""
    first = made_in(cloned(tmp_path / "clone"), tmp_path / "first", 0o022, LC_ALL="C")
    other, site = cloned(tmp_path / "the other"), tmp_path / "site"
    for path in other.rglob("*"):
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
        os.utime(path, (10**9, 10**9))
    site.mkdir()
    (site / "sitecustomize.py").write_text(OTHER_ZLIB)
    differently = {"LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "7"}
    second = made_in(other, tmp_path / "second", 0o077, PYTHONPATH=str(site), **differently)
    assert len(first) == 8
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    wheels = sorted((tmp_path / "second").glob("*.whl"))
    assert [zipfile.ZipFile(wheel).testzip() for wheel in wheels] == [None] * 3
    flags = ["--quiet", "--no-deps", "--no-index", f"--target={site}"]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, *wheels], check=True)
    for project in (RUNTIME, SERVICE):
        assert (site / f"ortpacks_{project}" / "__init__.py").is_file()
