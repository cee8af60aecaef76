"""The table of what NVIDIA's pinned libraries do not serve, against the bytes of these libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.builds.wiring import Wiring
from builder.pipeline.inspect import read_file
from builder.rules.nvidia_libraries import MISSING, missing_in

pytestmark = pytest.mark.integration


def test_the_table_is_what_the_wheels_hold(root: Path) -> None:
    """./run lock writes it when a pin moves."""
    shop = Wiring(root)
    store = shop.store(shop.lock)
    found = {}
    for wheel in (*shop.project.cuda.libraries.values(), shop.project.cudnn.wheel):
        readings = [read_file(file.name, file) for file in sorted(store.unpack(wheel).rglob("lib*.so*"))]
        found[wheel.spec] = missing_in([one.coverage for one in readings if one.coverage])
    assert found == MISSING
