"""Packages in ``dist/``, for tests of profiles that take an hour to compile."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from builder.formats.package_names import PackageName
from tests.answers import pairs
from tests.answers.pairs import Pair
from tests.support import ROOT
from tests.support.real_packages import manifest

DIST = ROOT / "dist"


def built() -> list[ParameterSet]:
    """Return a parameter for each full package for CUDA in ``dist/``; without any, one that is skipped.

    Packages of profile minimal are left out: they place no node on CUDA, and the tests build one themselves.
    """
    files = {file: PackageName.parse(file.name) for file in sorted(DIST.glob("ortpacks-*.tar.zst"))}
    wanted = {
        file: name
        for file, name in files.items()
        if name.cuda and name.profile != "minimal" and name.layout == "full"
    }
    if not wanted:
        why = "no package of profile lean or full in dist/: ./run build --variant legacy makes one"
        return [pytest.param(None, marks=pytest.mark.skip(reason=why), id="none")]
    return [
        pytest.param(file, id=f"{name.variant}-{name.profile or 'full'}") for file, name in wanted.items()
    ]


def compiled(package: Path) -> Pair:
    """Return the package's pair; skip the test if the package is the repacked official wheel."""
    if manifest(package)["onnxruntime"]["origin"] == "wheel":  # type: ignore[index]
        pytest.skip("the official wheel, repacked: it would be compared with itself")
    return pair_of(package)


@cache
def pair_of(package: Path) -> Pair:
    """Return a package's pair, which is unpacked once for all tests of a run and removed at its end."""
    folder = tempfile.mkdtemp(prefix="ortpacks-pair-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pairs.ours(package, Path(folder))
