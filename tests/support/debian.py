"""Programs of Debian's archive, unpacked and not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builder.builds.wiring import Wiring
from tests.support import ROOT


def debian_program(package: str, path: str) -> Path:
    """The file ``path`` of a package, alone kept in the cache. Without apt to fetch it the test is skipped.

    ``package`` is a name as apt takes it, ``docker-compose/trixie``.
    """
    folder = Wiring(ROOT).cache / package.partition("/")[0]
    found = folder / path
    if not found.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        argv = ["apt-get", "download", package]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        packages = list(folder.glob("*.deb"))
        if done.returncode != 0 or not packages:
            pytest.skip(f"{' '.join(argv)}: {done.stderr.strip()[-200:]}")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE) as tar:
            argv = ["tar", "--extract", f"--directory={folder}", f"./{path}"]
            subprocess.run(argv, stdin=tar.stdout, check=True)
        packages[0].unlink()
    return found
