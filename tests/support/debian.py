"""Programs of Debian's archive, taken from their packages without installing these."""

import subprocess
from pathlib import Path

import pytest

from builder.io.wiring import Wiring
from tests.support import ROOT, ran


def debian_program(package: str, path: str) -> Path:
    """Return the file ``path`` of a Debian package, extracted into the cache at the first call.

    ``package`` is a name in apt's form, such as ``docker-compose/trixie``. The test is skipped where apt
    cannot download the package.
    """
    folder = Wiring(ROOT).cache / package.partition("/")[0]
    found = folder / path
    if not found.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        argv = ["apt-get", "download", package]
        done = ran(argv, cwd=folder)
        packages = list(folder.glob("*.deb"))
        if done.returncode != 0 or not packages:
            pytest.skip(f"{' '.join(argv)}: {done.stderr.strip()[-200:]}")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE) as tar:
            argv = ["tar", "--extract", f"--directory={folder}", f"./{path}"]
            subprocess.run(argv, stdin=tar.stdout, check=True)
        packages[0].unlink()
    return found
