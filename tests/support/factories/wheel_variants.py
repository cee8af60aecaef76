"""Support and drivers of the variants that wheels are made of, and of machines that install them."""

from builder.formats.manifest import Driver

DRIVERS = {"12.0": "525.60.13", "12.4": "550.54.14", "12.8": "570.26", "13.0": "580.65.06"}
"""CUDA versions and their first drivers: the CUDA Toolkit release notes."""

MAPS = {
    "legacy": {"native": "5.0 5.2 6.0 6.1 7.0", "partial": "7.5"},
    "modern": {"native": "7.5 8.0 8.6 8.9"},
    "latest": {"native": "8.9 9.0 10.0 10.3 12.0 12.1"},
    "official": {"native": "6.0 6.1 7.0 7.5 8.0 8.6 8.9 9.0", "jit": "10.0 10.3 12.0 12.1"},
    "exact": {"native": "8.9 9.0 12.0"},
}
"""Support read in the packages of 1.21.0 and in the official wheel of 1.23.2; ``exact`` has 120a
and no 121a."""

FLOORS = {"latest": "570.26", "exact": "570.26"}


def told(variant: str) -> tuple[dict[str, str], Driver]:
    """Return a variant's support by capability and its drivers."""
    support = {one: how for how, several in MAPS[variant].items() for one in several.split()}
    return support, Driver(FLOORS.get(variant, "525.60.13"), None)
