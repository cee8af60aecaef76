"""The text of a choice: a table with a row per package and a column per GPU.

Below a package's row is the reason for which another one was chosen.
"""

from __future__ import annotations

import textwrap
from typing import Iterator, List, Optional, Sequence

from builder.client.selection.reasons import refusal, support_of, system_refusal
from builder.client.selection.select import PackageChoice, by_number
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage, distinct, is_same
from builder.formats.package_names import CUDA, MUSL

WIDTH = 120

_GAP = "  "

_INDENT = "    "

_NOTHING = "-"


def lines(
    choice: PackageChoice, devices: Sequence[Device], index: Index, platform: str, glibc: Optional[str] = None
) -> List[str]:
    """Return the system, a line for each GPU, and the table, as lines of text.

    The lines have at most ``WIDTH`` columns, unless names are longer.
    """
    packages = sorted(distinct(index.packages), key=lambda package: (package.name, package.file))
    gpus = by_number(devices)
    rows = [_row(package, choice, gpus, _runs(package, gpus, platform, glibc)) for package in packages]
    reasons = {rejection.package: rejection.reason for rejection in choice.reasons}
    below = [_wrapped(reasons.get(package.name)) for package in packages]
    head = ["package", *(f"GPU {device.index}" for device in gpus), "driver", "glibc", "size", "verdict"]
    return [*_machine(gpus, platform, glibc), "", *_table([head, *rows], [[], *below])]


def _machine(devices: Sequence[Device], platform: str, glibc: Optional[str]) -> Iterator[str]:
    library = {None: "glibc unknown", MUSL: "musl"}.get(glibc, f"glibc {glibc}")
    yield f"{platform}, {library}" if platform.startswith("linux") else platform
    for device in devices:
        yield f"GPU {device.index}: {device}, driver {device.driver or 'unknown'}"
    if not devices:
        yield "no NVIDIA GPU"


def _runs(package: IndexPackage, devices: Sequence[Device], platform: str, glibc: Optional[str]) -> bool:
    if package.provider != CUDA:
        return system_refusal(package, platform, glibc) is None
    return any(refusal(package, device, platform, glibc) is None for device in devices)


def _row(package: IndexPackage, choice: PackageChoice, devices: Sequence[Device], runs: bool) -> List[str]:
    cuda = package.provider == CUDA
    support = (support_of(package, device) if cuda else _NOTHING for device in devices)
    is_chosen = choice.package is not None and is_same(package, choice.package)
    verdict = "chosen" if is_chosen else "runs too" if runs else "refused"
    size = f"{package.size / 1e6:,.1f} MB"
    return [package.name, *support, _window(package), package.glibc or _NOTHING, size, verdict]


def _window(package: IndexPackage) -> str:
    if package.driver is None:
        return _NOTHING
    last = f" to {package.driver.ceiling}" if package.driver.ceiling else " on"
    return f"{package.driver.floor}{last}"


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
    return f"{text:>{width}}" if head == "size" else f"{text:<{width}}"
