"""Tests of driver versions, product names and platforms."""

from __future__ import annotations

import re

import pytest

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device, above_ceiling, below_floor, parse_driver, platform_of
from builder.facts.gpu.table import capability_of_product

# From NVIDIA's "CUDA GPU Compute Capability" (developer.nvidia.com/cuda-gpus) and "Legacy CUDA GPU Compute
# Capability" (/cuda-legacy-gpus), as published in 2017 and 2025.
PUBLISHED = {
    "3.0": "Tesla K10, Quadro K5000, Quadro K4200, Quadro K4000, Quadro K2000, Quadro K2000D, Quadro K600, "
    "Quadro K420, Quadro 410, Quadro K5100M, Quadro K500M, Quadro K4100M, Quadro K3100M, "
    "Quadro K2100M, Quadro K1100M, NVIDIA NVS 510, GeForce GTX 770, GeForce GTX 760, "
    "GeForce GTX 690, GeForce GTX 680, GeForce GTX 670, GeForce GTX 660 Ti, GeForce GTX 660, "
    "GeForce GTX 650 Ti BOOST, GeForce GTX 650 Ti, GeForce GTX 650, GeForce GT 740, "
    "GeForce GTX 880M, GeForce GTX 780M, GeForce GTX 770M, GeForce GTX 765M, GeForce GTX 760M, "
    "GeForce GTX 680MX, GeForce GTX 680M, GeForce GTX 675MX, GeForce GTX 670MX, GeForce GTX 660M, "
    "GeForce GT 755M, GeForce GT 750M, GeForce GT 745M, GeForce GT 650M, GeForce GT 645M, "
    "GeForce GT 640M, GeForce GT 640M LE",
    "3.2": "Jetson TK1, Tegra K1",
    "3.5": "Tesla K40, Tesla K20, Quadro K6000, Quadro K5200, Quadro K610M, Quadro K510M, "
    "GeForce GTX TITAN Z, GeForce GTX TITAN Black, GeForce GTX TITAN, GeForce GTX 780 Ti, "
    "GeForce GTX 780, GeForce 920M",
    "3.7": "Tesla K80",
    "5.0": "Quadro K2200, Quadro K1200, Quadro K620, Quadro K620M, Quadro K2200M, Quadro M1200, "
    "Quadro M520, Quadro M2000M, Quadro M1000M, Quadro M600M, Quadro M500M, NVIDIA NVS 810, "
    "GeForce GTX 750 Ti, GeForce GTX 750, GeForce GTX 960M, GeForce GTX 950M, GeForce 940M, "
    "GeForce 930M, GeForce GTX 850M, GeForce 840M, GeForce 830M",
    "5.2": "Tesla M60, Tesla M40, Quadro M6000 24GB, Quadro M6000, Quadro M5000, Quadro M4000, "
    "Quadro M2000, Quadro M5500M, Quadro M2200, GeForce GTX TITAN X, GeForce GTX 980 Ti, "
    "GeForce GTX 980, GeForce GTX 970, GeForce GTX 960, GeForce GTX 950, GeForce GTX 980M, "
    "GeForce GTX 970M, GeForce GTX 965M",
    "5.3": "Jetson Nano, Jetson TX1, Tegra X1",
    "6.0": "Tesla P100, Quadro GP100",
    "6.1": "Tesla P40, Tesla P4, Quadro P6000, Quadro P5200, Quadro P5000, Quadro P4200, Quadro P4000, "
    "Quadro P3200, Quadro P3000, Quadro P2200, Quadro P2000, Quadro P1000, Quadro P620, "
    "Quadro P600, Quadro P500, Quadro P400, P620, P520, NVIDIA TITAN Xp, NVIDIA TITAN X, "
    "GeForce GTX 1080 Ti, GeForce GTX 1080, GeForce GTX 1070 Ti, GeForce GTX 1070, "
    "GeForce GTX 1060, GeForce GTX 1050",
    "6.2": "Jetson TX2",
    "7.0": "NVIDIA V100, Quadro GV100, NVIDIA TITAN V",
    "7.2": "Jetson AGX Xavier, Jetson Xavier NX",
    "7.5": "NVIDIA T4, T1000, T600, T400, T2000, T1200, T500, Quadro RTX 8000, Quadro RTX 6000, "
    "Quadro RTX 5000, Quadro RTX 4000, GeForce GTX 1650 Ti, NVIDIA TITAN RTX, Geforce RTX 2080 Ti, "
    "Geforce RTX 2080, Geforce RTX 2070, Geforce RTX 2060",
    "8.0": "NVIDIA A100, NVIDIA A30",
    "8.6": "NVIDIA A40, NVIDIA A10, NVIDIA A16, NVIDIA A2, RTX A6000, RTX A5000, RTX A4000, RTX A3000, "
    "RTX A2000, GeForce RTX 3090 Ti, GeForce RTX 3090, GeForce RTX 3080 Ti, GeForce RTX 3080, "
    "GeForce RTX 3070 Ti, GeForce RTX 3070, Geforce RTX 3060 Ti, Geforce RTX 3060, "
    "GeForce RTX 3050 Ti, GeForce RTX 3050",
    "8.7": "Jetson AGX Orin, Jetson Orin NX, Jetson Orin Nano",
    "8.9": "NVIDIA L4, NVIDIA L40S, NVIDIA L40, GeForce RTX 4090, GeForce RTX 4080, GeForce RTX 4070 Ti, "
    "GeForce RTX 4070, GeForce RTX 4060 Ti, GeForce RTX 4060, GeForce RTX 4050",
    "9.0": "NVIDIA H200, NVIDIA H100",
    "10.0": "NVIDIA GB200, NVIDIA B200",
    "10.3": "NVIDIA GB300, NVIDIA B300",
    "12.0": "GeForce RTX 5090, GeForce RTX 5080, NVIDIA RTX PRO 6000 Blackwell Server Edition, "
    "NVIDIA RTX PRO 5000 Blackwell, NVIDIA RTX PRO 4500 Blackwell, NVIDIA RTX PRO 4000 Blackwell",
    "12.1": "NVIDIA GB10",
}


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


@pytest.mark.parametrize(
    ("capability", "product"),
    [(capability, product) for capability, products in PUBLISHED.items() for product in products.split(", ")],
)
def test_published_products(capability: str, product: str) -> None:
    assert str(capability_of_product(product)) == capability


@pytest.mark.parametrize(
    ("product", "capability"),
    [
        # printed by deviceQuery and nvidia-smi on the machines of public issues
        ("GeForce GTX 780", "3.5"),
        ("NVIDIA GeForce GTX 960", "5.2"),
        ("Tesla M40 24GB", "5.2"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("NVIDIA GeForce GTX 1060 6GB", "6.1"),
        ("GeForce GTX 1070 with Max-Q Design", "6.1"),
        ("GRID P40-8Q", "6.1"),
        ("NVIDIA Tegra X2", "6.2"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("Tesla V100S-PCIE-32GB", "7.0"),
        ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", "7.5"),
        ("Quadro RTX 5000 with Max-Q Design", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA A100 80GB PCIe", "8.0"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"),
        ("NVIDIA A800-SXM4-80GB", "8.0"),
        ("A10G", "8.6"),
        ("NVIDIA A40-48Q", "8.6"),
        ("NVIDIA RTX A1000 6GB Laptop GPU", "8.6"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "8.6"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "8.9"),
        ("NVIDIA GeForce RTX 4090 D", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA H200 NVL", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
        ("NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU", "12.0"),
        ("nvidia  geforce rtx 5090", "12.0"),
    ],
)
def test_products_as_a_driver_names_them(product: str, capability: str) -> None:
    assert str(capability_of_product(product)) == capability


@pytest.mark.parametrize(
    "product",
    [
        "GeForce GT 640",  # GF108, GK107 or GK208
        "GeForce GT 730",  # GF108 or GK208
        "GeForce GTX 860M",  # GK104 or GM107 by NVIDIA's page itself
        "GeForce 910M",  # 5.2 on the page, the chip is a GK208
        "Quadro M620",  # 5.2 on the page, the chip is a GM107
        "Quadro M4000M",  # 5.0 on the page, the chip is a GM204
        "GeForce RTX 3050 A Laptop GPU",  # the chip is an AD106
        "GeForce GTX 580",  # Fermi
        "GeForce RTX 6090",
        "Radeon RX 580",
        "NVIDIA Thor",  # 10.1 or 11.0, by the driver
        "RTX 6000",  # Quadro RTX 6000 or RTX 6000 Ada Generation
        "Graphics Device",
        "GRID",
        "NVIDIA",
        "A100 of mine",
        "",
    ],
)
def test_products_that_stand_for_several_chips_or_none_are_not_guessed(product: str) -> None:
    assert capability_of_product(product) is None


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
