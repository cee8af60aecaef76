"""NVIDIA's cards on the PCI bus: they are seen there whatever driver they have, or none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

NVIDIA = "0x10de"
DISPLAY = "0x03"
"""A class that begins so is a display controller: with or without outputs."""


@dataclass(frozen=True)
class Card:
    """One display controller."""

    address: str
    """``0000:01:00.0``."""
    device: str
    """Its number, ``2684``: pci.ids and NVIDIA's lists of products go by it."""
    driver: Optional[str]
    """The kernel's driver for it: ``nvidia``, ``nouveau``, ``vfio-pci``; ``None`` when it has none."""


def cards(root: Path) -> Tuple[Card, ...]:
    """NVIDIA's, by address. Empty where the system does not show its bus."""
    folders = sorted((root / "sys/bus/pci/devices").glob("*"))
    return tuple(_card(folder) for folder in folders if _is_ours(folder))


def _is_ours(folder: Path) -> bool:
    return _word(folder / "vendor") == NVIDIA and _word(folder / "class").startswith(DISPLAY)


def _card(folder: Path) -> Card:
    driver = folder / "driver"
    name = driver.resolve().name if driver.is_symlink() else None
    return Card(address=folder.name, device=_word(folder / "device")[2:], driver=name)


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
