"""Driver versions, product names (capabilities from developer.nvidia.com/cuda-gpus) and platforms."""

from __future__ import annotations

import pytest

from builder.core.device import above_ceiling, below_floor, capability_of_product, parse_driver, platform_of


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
    ("driver", "above"),
    [("580.95.05", False), ("580", False), ("575.64", False), ("590.44.01", True), ("581.1", True)],
)
def test_ceiling_is_a_branch(driver: str, above: bool) -> None:
    assert above_ceiling(driver, "580") is above


@pytest.mark.parametrize("text", ["", "abc", "[N/A]", "570.", "570.x", "5.7.0.1.2", "12345", "-1"])
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a driver version"):
        parse_driver(text)


@pytest.mark.parametrize(
    ("product", "capability"),
    [
        ("Quadro M2200", "5.2"),
        ("Quadro M2000", "5.2"),
        ("Quadro M2000M", "5.0"),
        ("Quadro M1200", "5.0"),
        ("GeForce GTX 750 Ti", "5.0"),
        ("NVIDIA GeForce GTX 960", "5.2"),
        ("GeForce GTX 960M", "5.0"),
        ("GeForce GTX TITAN X", "5.2"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("Tesla M60", "5.2"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("Tesla P40", "6.1"),
        ("Quadro P400", "6.1"),
        ("NVIDIA GeForce GTX 1050 Ti", "6.1"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("NVIDIA TITAN V", "7.0"),
        ("Tesla T4", "7.5"),
        ("Quadro RTX 3000", "7.5"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA GeForce GTX 1650", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA A30", "8.0"),
        ("NVIDIA A10", "8.6"),
        ("NVIDIA RTX A2000", "8.6"),
        ("NVIDIA GeForce RTX 3090", "8.6"),
        ("Tesla K80", "3.7"),
        ("Tesla K40c", "3.5"),
    ],
)
def test_products_of_the_470_branch(product: str, capability: str) -> None:
    assert str(capability_of_product(product)) == capability


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA RTX 4000 Ada Generation",
        "NVIDIA RTX 2000 Ada Generation",
        "NVIDIA RTX 6000 Ada Generation",
        "GRID",
        "",
    ],
)
def test_products_the_table_does_not_know_are_not_guessed(product: str) -> None:
    assert capability_of_product(product) is None


def test_platforms() -> None:
    assert platform_of("Linux", "x86_64") == "linux-x64"
    assert platform_of("Windows", "AMD64") == "win-x64"
    assert platform_of("FreeBSD", "riscv64") == "freebsd-riscv64"
