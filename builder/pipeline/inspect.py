"""inspect: which GPUs the device code in some libraries runs on, as a table, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.binary.coverage import LibraryCoverage, Support, columns, combine
from builder.binary.library import Inspected, Report
from builder.findings.finding import Code
from builder.formats.text import printable
from builder.gpu.table import GENERATIONS, MODELS
from builder.pipeline.library_file import read_file
from builder.report.heatmap import MARKS, MEANINGS, heat_maps
from builder.report.heatmap_text import text
from builder.report.sentences import SPECIALISED, notes, summary

FORMAT = 2

_STARTS = tuple(MODELS.index(generation.models[0]) for generation in GENERATIONS)
"""The columns that a generation begins with."""


def inspect(libraries: Iterable[tuple[str, Path]]) -> tuple[Inspected, ...]:
    """Read each library; a file that cannot be read is a result that says so, never a silent pass."""
    return tuple(_inspected(name, file) for name, file in libraries)


def table(reports: Sequence[Report]) -> str:
    """For a terminal: a row a library, a column a compute capability, and what it comes to in words."""
    return text(heat_maps(reports))


def document(reports: Sequence[Report]) -> dict[str, object]:
    """The JSON form; its schema is ``docs/schemas/inspect.schema.json``."""
    return {"format": FORMAT, "sources": [_source(label, libraries) for label, libraries in reports]}


def page(reports: Sequence[Report], loader: BaseLoader) -> str:
    """One HTML page that needs nothing but itself. The same reports give the same text."""
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    return environment.get_template("inspect.html.j2").render(
        maps=heat_maps(reports),
        generations=GENERATIONS,
        models=MODELS,
        starts=_STARTS,
        legend=[(support.value, MARKS[support], MEANINGS[support]) for support in Support],
        specialised=SPECIALISED,
    )


def _inspected(name: str, file: Path) -> Inspected:
    if file.is_symlink() and not file.is_file():
        return Inspected(name=name, problem=f"{Code.E010.name} {_astray(file)}")
    reading = read_file(name, file)
    if reading.problem is not None:
        return Inspected(name=name, problem=f"{reading.problem.code.name} {reading.problem.message}")
    elf = reading.elf
    return Inspected(
        name=name,
        coverage=reading.coverage,
        bare=reading.bare,
        soname=elf.soname if elf else None,
        needed=elf.needed if elf else (),
    )


def _astray(link: Path) -> str:
    return f"a link to {printable(str(link.readlink()))}, where no file is"


def _source(label: str, libraries: Sequence[Inspected]) -> dict[str, object]:
    covered = [item.runnable for item in libraries if item.runnable]
    combined = combine(covered) if covered else {}
    return {
        "source": label,
        "sentence": summary(libraries),
        "capabilities": {str(device): support.value for device, support in combined.items()},
        "libraries": [_entry(item) for item in libraries],
    }


def _entry(item: Inspected) -> dict[str, object]:
    coverage = item.coverage
    return {
        "name": item.name,
        "problem": item.problem or None,
        "soname": item.soname,
        "needed": list(item.needed),
        **_code(coverage),
        "capabilities": _capabilities(item.runnable) if item.runnable else {},
        "notes": list(notes(item)),
    }


def _code(coverage: LibraryCoverage | None) -> dict[str, object]:
    """Counts and architectures; all of them nothing without device code."""
    return {
        "containers": coverage.containers if coverage else 0,
        "idle": coverage.nothing_to_run if coverage else 0,
        "sections": dict(coverage.sections) if coverage else {},
        "images": _images(coverage) if coverage else {},
        "sass": [str(arch) for arch in coverage.sass] if coverage else [],
        "ptx": [str(arch) for arch in coverage.ptx] if coverage else [],
        "ltoir": [str(arch) for arch in coverage.ltoir] if coverage else [],
        "unknown": coverage.unknown if coverage else 0,
        "specialised": bool(coverage and coverage.specialised),
        "zstd": bool(coverage and coverage.zstd),
    }


def _images(coverage: LibraryCoverage) -> dict[str, object]:
    return {
        section: {
            kind.value: {str(arch): count for arch, count in sorted(arches.items())}
            for kind, arches in kinds.items()
        }
        for section, kinds in coverage.images.items()
    }


def _capabilities(coverage: LibraryCoverage) -> dict[str, object]:
    support = coverage.support
    devices = [gpu.device for gpu in columns([coverage])]
    return {
        str(device): {
            "support": support[device].value,
            "native": coverage.tally[device].native,
            "jit": coverage.tally[device].jit,
            "none": coverage.tally[device].none,
        }
        for device in devices
    }
