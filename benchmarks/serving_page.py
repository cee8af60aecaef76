"""This module makes the table, page and picture of ``./run bench``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.bars import Bar, bars_picture
from benchmarks.serving import BATCHES, Row

_HEAD = (
    *(
        "what",
        "provider",
        "level",
        "file",
        "texts",
        "runs",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "texts/s",
        "CPU s/1000",
    ),
    *("first answer s", "MiB"),
)


_OURS = ("runtime layer", "service, one client")
"""Names of the rows that are ours."""

_ABOUT = """\
Each row is a process of its own. The processes compute in turn, on the same texts of 4 to 40 words, with the
same ONNX Runtime, threads and `model.onnx` (`file` int8: `model_int8.onnx`). "First answer" counts from the
process's start; for the service, from its client's. A request to the service lasts from its first byte to the
answer's last. CPU seconds and memory of that row are the service's, with its image's `GLIBC_TUNABLES`."""


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the header and a line for each way and batch.

    A way that did not run has one line, with its reason.
    """
    return [list(_HEAD), *(line for row in rows for line in _lines(row))]


def _lines(row: Row) -> Iterator[list[str]]:
    begin = [row.name, row.provider, row.level]
    if row.reason:
        yield [*begin, f"not run: {row.reason}"]
        return
    for at, one in enumerate(row.figures):
        once = [f"{row.cold:.2f}", f"{(row.memory or 0) / 2**20:.0f}"] if at == 0 else ["", ""]
        times = [f"{1000 * value:.2f}" for value in (one.p50, one.p95, one.p99)]
        yield [
            *begin,
            row.dtype,
            str(one.batch),
            str(one.runs),
            *times,
            f"{one.items:.0f}",
            f"{one.cpu:.1f}",
            *once,
        ]


def text(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    lines = table(rows)
    widths = [
        max(len(line[at]) for line in lines if at < len(line) and len(line) == len(_HEAD))
        for at in range(len(_HEAD))
    ]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        if len(line) == len(_HEAD)
        else "  ".join([*(cell.ljust(width) for cell, width in zip(line[:3], widths, strict=False)), line[3]])
        for line in lines
    )


def page(rows: Sequence[Row], facts: Mapping[str, object], command: str, picture: str | None) -> str:
    """Return the Markdown page."""
    head, *lines = table(rows)
    cells = [head, ["---"] * len(head), *([*line, *[""] * (len(head) - len(line))] for line in lines)]
    told = ", ".join(f"{key} {value}" for key, value in facts.items())
    return "\n".join(
        [
            "# Embedding, measured",
            "",
            f"`{command}` wrote this page: {told}.",
            "",
            _ABOUT,
            "",
            *([f"![Texts a second at {BATCHES[-1]} texts at once]({picture})", ""] if picture else []),
            *("| " + " | ".join(line) + " |" for line in cells),
            "",
        ]
    )


def picture(rows: Sequence[Row], templates: Path) -> str:
    """Return an SVG with bars of texts per second at the largest batch."""
    bars = [
        Bar(f"{row.name}, {row.provider}, {row.level}", row.figures[-1].items, int(row.name not in _OURS))
        for row in rows
        if row.figures
    ]
    title = f"Texts a second at {BATCHES[-1]} texts at once"
    return bars_picture(title, bars, ("ortpacks", "others"), templates)


def dumps(rows: Sequence[Row], facts: Mapping[str, object]) -> str:
    """Return the facts and rows as JSON."""
    return json.dumps({"facts": facts, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
