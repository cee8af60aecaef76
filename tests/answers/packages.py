"""The packages that lie in ``dist/``, for tests that need what takes an hour to compile."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from builder.core.naming import ARCHIVE_SUFFIX, PackageName
from tests.answers import pairs
from tests.answers.pairs import Pair
from tests.integration.test_road import manifest
from tests.verbs import ROOT

DIST = ROOT / "dist"


def built() -> list[ParameterSet]:
    """One parameter for each package in ``dist/``; without any, one that is skipped and says why.

    Profile minimal is left out: it places no node on CUDA, and the tests build one of their own.
    """
    names = [PackageName.parse(file.name) for file in sorted(DIST.glob(f"ortpacks-*{ARCHIVE_SUFFIX}"))]
    wanted = [name for name in names if name.profile != "minimal"]
    if not wanted:
        why = "no package of profile lean or full in dist/: ./run build --variant legacy makes one"
        return [pytest.param(None, marks=pytest.mark.skip(reason=why), id="none")]
    return [
        pytest.param(DIST / name.archive, id=f"{name.variant}-{name.profile or 'full'}") for name in wanted
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
