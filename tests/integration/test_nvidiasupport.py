"""The table of what NVIDIA's pinned libraries do not serve, against the bytes of these libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.binary.coverage import Support, combine
from builder.builds.wiring import Wiring
from builder.gpu.table import CAPABILITIES
from builder.pipeline.inspect import read_file
from builder.rules.nvidia_libraries import MISSING

pytestmark = pytest.mark.integration


def test_the_table_is_what_the_wheels_hold(root: Path) -> None:
    """A pin that moves needs a new row: then this test names it."""
    shop = Wiring(root)
    store = shop.store(shop.lock)
    found = {}
    for wheel in (*shop.project.cuda.libraries.values(), shop.project.cudnn.wheel):
        readings = [read_file(file.name, file) for file in sorted(store.unpack(wheel).rglob("lib*.so*"))]
        coverage = [one.coverage for one in readings if one.coverage and one.coverage.runnable]
        if coverage:
            support = combine(coverage)
            served = (Support.NATIVE, Support.JIT)
            found[wheel.spec] = tuple(device for device in CAPABILITIES if support[device] not in served)
    assert found == MISSING
