"""Generations: each capability in its place, by NVIDIA's list of CUDA GPUs."""

from __future__ import annotations

import pytest

from builder.gpu.devices import capability_of_product
from builder.gpu.generations import CAPABILITIES, GENERATIONS, MODELS


def test_every_column_of_a_heat_map_has_its_model() -> None:
    assert tuple(model.device for model in MODELS) == CAPABILITIES


def test_generations_are_nvidias() -> None:
    found = {
        generation.name: " ".join(str(model.device) for model in generation.models)
        for generation in GENERATIONS
    }
    assert found == {
        "Maxwell": "5.0 5.2 5.3",
        "Pascal": "6.0 6.1 6.2",
        "Volta": "7.0 7.2",
        "Turing": "7.5",
        "Ampere": "8.0 8.6 8.7",
        "Ada": "8.9",
        "Hopper": "9.0",
        "Blackwell": "10.0 10.3 11.0 12.0 12.1",
    }


def test_jetsons_are_known_as_such() -> None:
    found = {model.module: str(model.device) for model in MODELS if model.module}
    assert found == {"Nano": "5.3", "TX2": "6.2", "Xavier": "7.2", "Orin": "8.7", "Thor": "11.0"}
    assert all(model.cards.startswith("Jetson ") == bool(model.module) for model in MODELS)


@pytest.mark.parametrize(
    ("product", "named"),
    [
        ("GeForce GTX 750", "GeForce GTX 750"),
        ("Quadro M2000M", "M2000M"),
        ("Tesla M40", "Tesla M40"),
        ("Tesla P100-PCIE-16GB", "Tesla P100"),
        ("Tesla P40", "P40"),
        ("Tesla V100-SXM2-16GB", "Tesla V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA RTX A6000", "RTX A6000"),
    ],
)
def test_cards_are_where_the_table_of_products_has_them(product: str, named: str) -> None:
    (model,) = (model for model in MODELS if model.device == capability_of_product(product))
    assert named in model.cards
