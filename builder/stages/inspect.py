"""inspect: which GPUs the device code in some libraries runs on, as a table or as JSON."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.coverage import CAPABILITIES, LibraryCoverage, Support, cover
from builder.core.elf import ElfError
from builder.core.fatbin import FatbinError, read_containers

FORMAT = 1
_MARKS = {Support.NATIVE: "N", Support.JIT: "j", Support.PARTIAL: "~", Support.NONE: "."}
_OURS = "libonnxruntime"


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """One library: its coverage, or ``None`` without device code, or what keeps it from being read."""

    name: str
    coverage: LibraryCoverage | None = None
    problem: str = ""


def inspect(libraries: Iterable[tuple[str, Path]]) -> tuple[Inspected, ...]:
    """Read each library; a file that cannot be read is a result that says so, never a silent pass."""
    return tuple(_read(name, path) for name, path in libraries)


def table(found: Sequence[Inspected]) -> str:
    """A row a library, a column a compute capability."""
    width = max(len(item.name) for item in found)
    head = f"{'library':<{width}}  " + " ".join(f"{device!s:>4}" for device in CAPABILITIES)
    legend = "N native   j by JIT   ~ some kernels missing   . not at all"
    return "\n".join([head, *(_row(item, width) for item in found), legend])


def document(found: Sequence[Inspected]) -> dict[str, object]:
    """The JSON form; its schema is ``docs/schemas/inspect.schema.json``."""
    return {"format": FORMAT, "libraries": [_entry(item) for item in found]}


def _read(name: str, path: Path) -> Inspected:
    try:
        if path.stat().st_size == 0:
            return Inspected(name=name, problem="the file is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            containers = read_containers(buffer)
            return Inspected(name=name, coverage=cover(name, containers, specialised=_OURS not in name))
    except (ElfError, FatbinError, OSError) as error:
        return Inspected(name=name, problem=str(error))


def _row(item: Inspected, width: int) -> str:
    if item.problem:
        return f"{item.name:<{width}}  cannot be read: {item.problem}"
    if item.coverage is None:
        return f"{item.name:<{width}}  no device code"
    if item.coverage.opaque:
        return f"{item.name:<{width}}  not known: its kernels lie where no published tool reads them"
    marks = (_MARKS[item.coverage.support[device]] for device in CAPABILITIES)
    counts = f"  {item.coverage.containers} containers"
    return f"{item.name:<{width}}  " + " ".join(f"{mark:>4}" for mark in marks) + counts


def _entry(item: Inspected) -> dict[str, object]:
    coverage = item.coverage
    known = coverage.support if coverage and not coverage.opaque else {}
    return {
        "name": item.name,
        "problem": item.problem or None,
        "containers": coverage.containers if coverage else 0,
        "sass": [str(arch) for arch in coverage.sass] if coverage else [],
        "ptx": [str(arch) for arch in coverage.ptx] if coverage else [],
        "capabilities": {str(device): support.value for device, support in known.items()},
    }
