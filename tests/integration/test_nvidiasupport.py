"""Tests of the table of capabilities that NVIDIA's pinned libraries lack, by the libraries' bytes."""

from pathlib import Path

import pytest

from builder.binary.library_names import is_named_like_a_library
from builder.config.inputs import Input
from builder.config.toolkits import MISSING, missing_in
from builder.contents.reading import read_file
from builder.io.wiring import Wiring


def bundled(wiring: Wiring) -> dict[str, Input]:
    """Return NVIDIA's wheels of every variant, of any platform and toolkit, by spec."""
    project = wiring.project
    projects = [project, *(project.of(variant) for variant in project.variants.values())]
    return {wheel.spec: wheel for one in projects for wheel in one.bundled}


def test_the_table_has_every_bundled_wheel_and_no_other(root: Path) -> None:
    """``./run lock`` writes the table when a pin changes."""
    assert MISSING.keys() == bundled(Wiring(root)).keys()


@pytest.mark.parametrize("spec", sorted(MISSING))
def test_a_row_is_what_the_wheel_holds(root: Path, spec: str) -> None:
    """Wheels of the default variants are fetched; other wheels are tested if the cache has them."""
    wiring = Wiring(root)
    store = wiring.store(wiring.lock)
    wheel = bundled(wiring)[spec]
    if wheel not in wiring.project.bundled and any(store.absent(wheel)):
        pytest.skip(f"{spec} is not in the input cache: building its variant fetches it")
    files = sorted(file for file in store.unpack(wheel).rglob("*") if is_named_like_a_library(file.name))
    readings = [read_file(file.name, file, symbols=False) for file in files]
    assert missing_in([one.coverage for one in readings if one.coverage]) == MISSING[spec]
