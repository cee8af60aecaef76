"""Support and drivers of the variants that wheels are made of, and of machines that install them."""

import json

from builder.formats.manifest import Driver
from tests.support.tables import data_text

DRIVERS = {"12.0": "525.60.13", "12.4": "550.54.14", "12.8": "570.26", "13.0": "580.65.06"}
"""CUDA versions and their first drivers: the CUDA Toolkit release notes."""

MAPS: dict[str, dict[str, str]] = json.loads(data_text("cards/wheel-variants.json"))
"""Support read in the packages of 1.21.0 and in the official wheel of 1.23.2; ``exact`` has 120a
and no 121a."""

FLOORS = {"latest": "570.26", "exact": "570.26"}


def told(variant: str) -> tuple[dict[str, str], Driver]:
    """Return a variant's support by capability and its drivers."""
    support = {one: how for how, several in MAPS[variant].items() for one in several.split()}
    return support, Driver(FLOORS.get(variant, "525.60.13"), None)
