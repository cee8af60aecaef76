"""Fixture with the compiler launcher of the build container."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture(scope="session")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile ``unit`` as templates/variant.Dockerfile.j2 does; return the program's path."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc on PATH: compiles builder/farm/unit.c")
    program = tmp_path_factory.mktemp("unit") / "unit"
    sources = [ROOT / "builder/farm" / name for name in ("unit.c", "pool.c")]
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", program, *sources], check=True)
    return program
