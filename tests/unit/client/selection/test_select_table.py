"""Tests of ``select --explain``, the table of all packages and GPUs; the tables are in the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from builder.client.selection.select import select
from builder.client.selection.table import lines
from builder.facts.gpu.devices import Device
from builder.formats.index import Index
from tests.unit.client.selection.select_cases import INDEX, gpu, package, plain, release

OLD = gpu("5.2", memory=4096, index=0, uuid="GPU-old")

NEW = gpu("9.0", memory=24576, index=1, uuid="GPU-new")

BOTH = release(*INDEX.packages, plain("cpu"))

PART = replace(plain("cpu"), name="-".join(["part"] * 22), variant="other")

TABLES: dict[str, tuple[list[Device], Index, str, str | None]] = {
    "a row a package, a column a GPU": ([NEW, OLD], BOTH, "linux-x64", "2.36"),
    "no GPU, and musl": ([], BOTH, "linux-x64", ""),
    "a platform without CUDA": ([], release(plain("directml", "win-x64")), "win-x64", None),
    "a name that fits into 120 columns": ([], release(package("p" * 82, "8.6")), "linux-x64", "2.36"),
    "a name that does not": ([], release(package("p" * 83, "8.6")), "linux-x64", "2.36"),
    "a long reason": ([], release(PART, plain("cpu", size=11)), "linux-x64", None),
    "an old system": ([OLD, NEW], INDEX, "linux-x64", "2.28"),
    "what the machine does not say": ([gpu("8.6", driver=None)], INDEX, "linux-x64", None),
    **{
        f"{count} GPUs": (
            [gpu("8.0", index=number, uuid=f"GPU-{number}") for number in range(count)],
            release(
                *(
                    package(f"ortpacks-{name}-1.23.2-cuda12.9-linux-x64", "8.6", partial="8.0", size=10**9)
                    for name in ("latest", "legacy", "modern")
                )
            ),
            "linux-x64",
            "2.36",
        )
        for count in (1, 4, 8)
    },
}
"""Machine, release, platform and glibc."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_into_120_columns(name: str, told: Callable[[object], None]) -> None:
    devices, index, platform, glibc = TABLES[name]
    table = lines(select(devices, index, platform, glibc), devices, index, platform, glibc)
    assert max(map(len, table)) <= 120
    assert all(sum(line.startswith(item.name) for line in table) == 1 for item in index.packages)
    told("\n".join(table))
