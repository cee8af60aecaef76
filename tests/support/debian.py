"""Programs of Debian's archive, unpacked and not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builder.builds.wiring import Wiring
from tests.support import ROOT


def debian_program(package: str, path: str) -> Path:
    """The file ``path`` of a package, kept in the cache. The test is skipped where apt cannot fetch it.

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
        subprocess.run(["dpkg-deb", "-x", packages[0], folder], check=True)
    return found
