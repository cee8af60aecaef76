"""Tests of packages for another CUDA version or platform in one index: the choice by driver and machine."""

from __future__ import annotations

import pytest

from builder.client.selection.select import select
from tests.unit.client.selection.select_cases import gpu, package, release

OLD = package("ortpacks-modern-1.21.0-cuda12.9-linux-x64", "7.5 8.0 8.6", size=100)

NEW = package(
    "ortpacks-cuda13-1.31.1-cuda13.0-linux-x64", "7.5 8.0 8.6 8.9 9.0 12.0", size=200, floor="580.65.06"
)

PASCAL = package("ortpacks-legacy-1.21.0-cuda12.9-linux-x64", "6.1", ceiling="580")

WINDOWS = package(
    "ortpacks-windows-1.23.2-cuda12.9-win-x64", "8.6", platform="win-x64", glibc=None, floor="551.61"
)

ARM = package(
    "ortpacks-arm13-1.31.1-cuda13.0-linux-arm64", "9.0 12.1", platform="linux-arm64", floor="580.65.06"
)

INDEX = release(OLD, NEW, PASCAL, WINDOWS, ARM)


@pytest.mark.parametrize(
    ("capability", "driver", "platform", "chosen"),
    [
        ("8.6", "580.95.05", "linux-x64", NEW),
        ("8.6", "575.57.08", "linux-x64", OLD),
        ("6.1", "580.95.05", "linux-x64", PASCAL),
        ("8.6", "566.36", "win-x64", WINDOWS),
        ("12.1", "580.95.05", "linux-arm64", ARM),
        ("8.7", "580.95.05", "linux-arm64", None),  # Orin
        ("11.0", "580.95.05", "linux-arm64", None),  # Thor
    ],
)
def test_the_newest_cuda_that_the_driver_runs(
    capability: str, driver: str, platform: str, chosen: object
) -> None:
    assert select([gpu(capability, driver)], INDEX, platform, None).package is chosen


def test_why_the_other_cuda_was_not_taken() -> None:
    choice = select([gpu("8.6", "580.95.05")], INDEX, "linux-x64", None)
    reasons = {one.package: one.reason for one in choice.reasons}
    assert reasons[OLD.name] == f"it runs too, {NEW.name} is for CUDA 13, which this driver runs"
