"""Tests of driver versions, product names and platforms."""

from __future__ import annotations

import re

import pytest

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device, above_ceiling, below_floor, parse_driver, platform_of
from builder.facts.gpu.table import capability_of_product
from tests.support import ROOT

PRODUCTS = [
    line.partition("  #")[0].split("  ", 1)
    for line in (ROOT / "tests/data/gpus/products.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(
    ("driver", "floor", "below"),
    [
        ("525.60.13", "525.60.13", False),
        ("525.60.12", "525.60.13", True),
        ("525.105.17", "525.60.13", False),  # 105 > 60 as numbers, not as text
        ("570.133.07", "570.26", False),
        ("470.256.02", "525.60.13", True),
    ],
)
def test_driver_floor_compares_numbers(driver: str, floor: str, below: bool) -> None:
    assert below_floor(driver, floor) is below


@pytest.mark.parametrize(
    ("driver", "ceiling", "above"),
    [
        ("575.64", "580", False),
        ("580", "580", False),
        ("580.95.05", "580", False),
        ("590.44.01", "580", True),
        ("591.44", "580", True),
        ("581.80", "580", False),  # "NVIDIA-SMI 580.105.07  Driver Version: 581.80", as WSL prints it
        ("582.28", "580", False),
        ("475.14", "470", False),
        ("496.13", "470", True),
        ("575.64", "575", False),
        ("576.02", "575", True),
    ],
)
def test_ceiling_is_a_branch_in_which_drivers_for_windows_count_on(
    driver: str, ceiling: str, above: bool
) -> None:
    assert above_ceiling(driver, ceiling) is above


@pytest.mark.parametrize("text", ["", "abc", "[N/A]", "570.", "570.x", "5.7.0.1.2", "12345", "-1"])
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a driver version like 525.60.13") + "$"):
        parse_driver(text)


def test_a_driver_version_is_its_numbers() -> None:
    assert parse_driver(" 525.60.13\n") == (525, 60, 13)


@pytest.mark.parametrize(("capability", "product"), [*PRODUCTS, ("none", "")])
def test_the_capability_of_a_product_or_of_no_single_chip(capability: str, product: str) -> None:
    assert str(capability_of_product(product) or "none") == capability


@pytest.mark.parametrize(
    ("system", "machine", "platform"),
    [
        ("Linux", "x86_64", "linux-x64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Windows", "AMD64", "win-x64"),
        ("Darwin", "arm64", "macos-arm64"),
        ("Darwin", "x86_64", "macos-x64"),
        ("FreeBSD", "riscv64", "freebsd-riscv64"),
    ],
)
def test_platforms(system: str, machine: str, platform: str) -> None:
    assert platform_of(system, machine) == platform


@pytest.mark.parametrize(
    ("capability", "memory", "text"),
    [
        (Capability(9, 0), 143771, "NVIDIA H200 (compute capability 9.0, 143771 MiB)"),
        (None, 0, "NVIDIA H200 (capability unknown, 0 MiB)"),
        (None, None, "NVIDIA H200 (capability unknown)"),
    ],
)
def test_a_device_in_words(capability: Capability | None, memory: int | None, text: str) -> None:
    assert str(Device(0, "GPU-1", "NVIDIA H200", capability, memory, "570.26")) == text
