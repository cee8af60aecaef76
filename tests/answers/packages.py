"""The packages that lie in ``dist/``, for tests that need what takes an hour to compile."""

from __future__ import annotations

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
    """One parameter for each full package for CUDA in ``dist/``; without any, a skipped one that says why.

    Profile minimal is left out: it places no node on CUDA, and the tests build one of their own.
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
    """As ``pair_of``; the test is skipped where there is nothing of our own to compare."""
    if manifest(package)["onnxruntime"]["origin"] == "wheel":  # type: ignore[index]
        pytest.skip("the official wheel, repacked: it would be compared with itself")
    return pair_of(package)


@cache
def pair_of(package: Path) -> Pair:
    """A package's pair, unpacked once for all tests of a run; gone when the run ends."""
    folder = tempfile.mkdtemp(prefix="ortpacks-pair-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pairs.ours(package, Path(folder))
