"""The result of a choice, and its text: a table with a row per package and a column per GPU.

Below a package's row is the reason for which another one was chosen.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

from builder.formats.index import Index, IndexPackage, distinct, is_same
from builder.formats.package_names import CUDA, MUSL
from builder.gpu.devices import Device
from builder.selection.reasons import refusal, support_of, system_refusal
from builder.selection.shares import by_number


@dataclass(frozen=True)
class Rejection:
    """A package that was not chosen, and the reason in one sentence."""

    package: str
    reason: str


@dataclass(frozen=True)
class PackageChoice:
    """The package to run. ``package`` is ``None`` where the index has no package for this system."""

    package: Optional[IndexPackage]
    device: Optional[Device]
    """The GPU with the most memory among those that the package runs on; ``None`` where it runs on none."""
    support: Optional[str]
    """How the package's code runs on ``device``: ``native`` or ``jit``; ``None`` where ``device`` is."""
    reasons: Tuple[Rejection, ...]
    """One rejection for each other package, sorted by name."""
    summary: str
    """The choice and its reason. Without a GPU it begins with ``CPU:``, ``DirectML:`` or ``CoreML:``, and
    names a change that would make a GPU package run."""
    others: Tuple[Device, ...] = ()
    """The machine's other GPUs, by index."""
    visible: Optional[str] = None
    """The value of ``CUDA_VISIBLE_DEVICES`` that leaves only GPUs that this package runs on, the one with the
    most memory first; ``None`` where no GPU has to be hidden, or where ``notes`` explain why no value can be
    given."""
    notes: Tuple[str, ...] = ()
    """Further facts and remedies for the user, a sentence or two each."""

    @property
    def on_gpu(self) -> bool:
        """Return whether the package will run on an NVIDIA GPU of this machine."""
        return self.package is not None and self.device is not None


WIDTH = 120

_GAP = "  "

_INDENT = "    "

_NOTHING = "-"

_NUMBERS = ("size",)


def lines(
    choice: PackageChoice, devices: Sequence[Device], index: Index, platform: str, glibc: Optional[str] = None
) -> List[str]:
    """Return the system, a line for each GPU, and the table, as lines of text.

    The lines have at most ``WIDTH`` columns, unless names are longer.
    """
    packages = sorted(distinct(index.packages), key=lambda package: (package.name, package.file))
    gpus = by_number(devices)
    rows = [_row(package, choice, gpus, platform, glibc) for package in packages]
    reasons = {rejection.package: rejection.reason for rejection in choice.reasons}
    below = [_wrapped(reasons.get(package.name)) for package in packages]
    return [*_machine(gpus, platform, glibc), "", *_table([_head(gpus), *rows], [[], *below])]


def _machine(devices: Sequence[Device], platform: str, glibc: Optional[str]) -> Iterator[str]:
    library = {None: "glibc unknown", MUSL: "musl"}.get(glibc, f"glibc {glibc}")
    yield f"{platform}, {library}" if platform.startswith("linux") else platform
    for device in devices:
        yield f"GPU {device.index}: {device}, driver {device.driver or 'unknown'}"
    if not devices:
        yield "no NVIDIA GPU"


def _head(devices: Sequence[Device]) -> List[str]:
    gpus = (f"GPU {device.index}" for device in devices)
    return ["package", *gpus, "driver", "glibc", "size", "verdict"]


def _row(
    package: IndexPackage,
    choice: PackageChoice,
    devices: Sequence[Device],
    platform: str,
    glibc: Optional[str],
) -> List[str]:
    cuda = package.provider == CUDA
    support = (support_of(package, device) if cuda else _NOTHING for device in devices)
    verdict = _verdict(package, choice, devices, platform, glibc)
    return [package.name, *support, _window(package), package.glibc or _NOTHING, _size(package), verdict]


def _verdict(
    package: IndexPackage,
    choice: PackageChoice,
    devices: Sequence[Device],
    platform: str,
    glibc: Optional[str],
) -> str:
    if choice.package is not None and is_same(package, choice.package):
        return "chosen"
    if package.provider != CUDA:
        runs = system_refusal(package, platform, glibc) is None
    else:
        runs = any(refusal(package, device, platform, glibc) is None for device in devices)
    return "runs too" if runs else "refused"


def _window(package: IndexPackage) -> str:
    if package.driver is None:
        return _NOTHING
    last = f" to {package.driver.ceiling}" if package.driver.ceiling else " on"
    return f"{package.driver.floor}{last}"


def _size(package: IndexPackage) -> str:
    return f"{package.size / 1e6:,.1f} MB"


def _wrapped(reason: Optional[str]) -> List[str]:
    return textwrap.wrap(
        reason or "", WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def _table(rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of an aligned table, and behind each row its lines of ``below``.

    Where the table would be wider than ``WIDTH``, each name has a line of its own above its row.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    apart = sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH
    for row, more in zip(rows, below):
        cells = [_cell(text, width, head) for text, width, head in zip(row, widths, rows[0])]
        if apart:
            yield row[0]
            yield (_GAP + _GAP.join(cells[1:])).rstrip()
        else:
            yield _GAP.join(cells).rstrip()
        yield from more


def _cell(text: str, width: int, head: str) -> str:
    return f"{text:>{width}}" if head in _NUMBERS else f"{text:<{width}}"
