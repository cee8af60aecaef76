"""Packages of PyPI and npm, each installed once into a folder of its own below the cache."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.files.file_lock import exclusive
from builder.io.wiring import Wiring
from tests.support import ROOT, ran

UV = (
    "uv==0.13.9 --hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
)  # the hash is that of the wheel for Linux on x86-64, 17.6 MB


def pypi_program(packages: Sequence[str], program: str, python: str = sys.executable) -> Path:
    """Return the path of ``program`` in an environment with ``packages``, lines of a requirements file.

    The environment is one of ``python`` and stays in the cache. The test is skipped where pip cannot install
    the packages.
    """
    name, _, version = packages[0].partition(" ")[0].partition("==")
    of = "" if python == sys.executable else f"-{Path(python).name}"
    folder = Wiring(ROOT).cache / f"{name.partition('[')[0]}-{version or 'newest'}{of}"
    with exclusive(folder.with_suffix(".lock"), lambda: None):
        if not (folder / program).exists():
            subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
            wanted = folder / "requirements.txt"
            wanted.write_text("\n".join(packages) + "\n")
            pip = (folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted)
            done = ran(pip)
            if done.returncode:
                pytest.skip(f"{packages[0]} cannot be installed from PyPI: {done.stderr.strip()[-200:]}")
    return folder / program


def npm_package(name: str, version: str) -> Path:
    """Return the folder of a package of npm, beside those that it needs; none of their scripts has run.

    The test is skipped where npm cannot install it.
    """
    folder = Wiring(ROOT).cache / f"{name}-{version}"
    with exclusive(folder.with_suffix(".lock"), lambda: None):
        if not (folder / "node_modules" / name).is_dir():
            quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
            npm = ("npm", "install", *quiet, f"--prefix={folder}", f"{name}@{version}")
            done = ran(npm)
            if done.returncode:
                pytest.skip(f"{name} cannot be installed from npm: {done.stderr.strip()[-200:]}")
    return folder / "node_modules" / name
