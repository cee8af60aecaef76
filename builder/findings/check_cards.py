"""Cards that the driver in use leaves out, and drivers outside of what CUDA or the package runs with."""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional

from builder.findings.advice import Advice, Check, Fixes
from builder.findings.finding import Finding, Severity
from builder.findings.observed import PciCard, Seen
from builder.formats.manifest import Driver
from builder.formats.package_names import CUDA, SERVED
from builder.gpu.devices import above_ceiling, below_floor

FIX = Fixes(
    {
        "D010": Advice(
            Severity.ERROR,
            "Branch 580 is the last driver for Maxwell, Pascal and Volta. A newer one ignores the card, and "
            "nvidia-smi does not list it.",
            "Install a driver of branch 580 (in some distributions its package is called legacy).",
        ),
        "D011": Advice(
            Severity.WARNING,
            "The driver did not take every card: it may not know it, have failed to start it, or not have "
            "it.",
            "`sudo dmesg | grep -i nvrm` has the driver's reason.",
        ),
        "D012": Advice(
            Severity.NOTE,
            "Its generation is older than Maxwell: CUDA 12 has no code for it, and no package does.",
            "Nothing: it cannot be used. Models run on the CPU, or on another card.",
        ),
        "D031": Advice(
            Severity.ERROR,
            "{what} needs driver {floor} or newer.",
            "Update the NVIDIA driver; in a container, the host's.",
        ),
        "D032": Advice(
            Severity.ERROR,
            "{what} runs with drivers up to branch {ceiling}: newer ones do not know its GPUs.",
            "Install a driver of branch {ceiling}, or run `install` again for another package.",
        ),
    }
)

LAST_OF_OLD = "580"
"""The last branch for the cards before Turing (docs/variants.md)."""

CUDA12_FLOOR = Driver("525.60.13", None)
"""Minor-version compatibility of CUDA 12 on Linux: docs.nvidia.com/deploy/cuda-compatibility."""

_MAXWELL, _TURING = 0x1340, 0x1E00
"""PCI device ids: display devices between them are Maxwell, Pascal or Volta. Source: pci.ids."""


def ignored(seen: Seen) -> Iterator[Finding]:
    """D010. A driver that is stated says nothing of this machine's cards."""
    if seen.around.stated:
        return
    old = [card for card in _cards(seen) if _MAXWELL <= card.device < _TURING]
    if old and _lacking(seen) and seen.driver and above_ceiling(seen.driver, LAST_OF_OLD):
        said = f"The driver is {seen.driver}, it lists {seen.listed} of {len(_cards(seen))} cards"
        yield FIX.found("D010", f"{said}, and {_named(old)} is from before Turing.")


def not_listed(seen: Seen) -> Iterator[Finding]:
    """D011: some are listed, others are not, and D010 and D012 do not explain it."""
    if not seen.listed or not _lacking(seen) or [*ignored(seen), *too_old(seen)]:
        return
    said = f"The driver lists {seen.listed} GPU(s), and the bus has {len(_cards(seen))} NVIDIA cards"
    yield FIX.found("D011", f"{said}: {_named(_cards(seen))}.")


def too_old(seen: Seen) -> Iterator[Finding]:
    """D012."""
    old = [card for card in _cards(seen) if card.device < _MAXWELL]
    if old:
        yield FIX.found("D012", f"An NVIDIA card from before Maxwell: {_named(old)}.")


def window(seen: Seen) -> Iterator[Finding]:
    """D031 and D032, for the package in use; where none is, by what every package needs.

    D010 says the same as D032 of the card itself.
    """
    package = seen.installed.package if seen.installed else None
    limits = package.driver if package else _any_package(seen)
    driver = seen.driver
    if limits is None or driver is None:
        return
    what = f"The package {package.name}" if package else "CUDA 12"
    if _holds(below_floor, driver, limits.floor):
        yield FIX.found("D031", f"The driver is {driver}.", what=what, floor=limits.floor)
    if limits.ceiling and _holds(above_ceiling, driver, limits.ceiling) and not [*ignored(seen)]:
        yield FIX.found("D032", f"The driver is {driver}.", what=what, ceiling=limits.ceiling)


def _any_package(seen: Seen) -> Optional[Driver]:
    return CUDA12_FLOOR if seen.around.platform in SERVED[CUDA] else None


def _holds(compare: Callable[[str, str], bool], driver: str, limit: str) -> bool:
    """A limit that is no version limits nothing: the manifest may be anybody's."""
    try:
        return compare(driver, limit)
    except ValueError:
        return False


def _cards(seen: Seen) -> List[PciCard]:
    """The cards that are not reserved for a virtual machine."""
    return [card for card in seen.kernel.cards if card.driver != "vfio-pci"]


def _lacking(seen: Seen) -> bool:
    """Whether the driver lists fewer than there are. A container may have been given some of them only."""
    return not seen.listed if seen.around.container else seen.listed < len(_cards(seen))


def _named(cards: List[PciCard]) -> str:
    return ", ".join(f"{card.address} (10de:{card.device:04x})" for card in cards)


CHECK = Check("cards", "D0", (ignored, not_listed, too_old, window), FIX)
