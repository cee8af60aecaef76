"""What compiling took: the Ninja tree's unit log and sessions as one JSON file.

It goes beside the package, never into it: the same inputs give the same package, not the same seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from builder.inside.costs import Line, read_log

_SESSIONS = "sessions.log"
_CACHE_LOG = "ccache-stats.log"


def session(tree: Path, started: float, ended: float, jobs: int) -> None:
    """Note one Ninja run, in seconds since 1970; a tree may take several."""
    with (tree / _SESSIONS).open("a", encoding="utf-8") as file:
        file.write(f"{started:.3f} {ended:.3f} {jobs}\n")


def write(file: Path, tree: Path) -> None:
    """All that the tree has taken since it was begun."""
    log = list(read_log(tree / "units.log"))
    sessions = [tuple(map(float, line.split())) for line in (tree / _SESSIONS).read_text().splitlines()]
    document = {
        "format": 1,
        "units": len({line.output for line in log}),
        "compilations": len(log),
        "cache_hits": cache_hits(tree / _CACHE_LOG),
        "cpu_s": round(sum(line.cpu for line in log) / 1000, 1),
        "wall_s": round(sum(ended - started for started, ended, _ in sessions), 1),
        "jobs": int(max((jobs for _, _, jobs in sessions), default=0)),
        "peak_mib": peak_mib(log),
        "longest_unit_s": round(max((line.end - line.start for line in log), default=0) / 1000, 1),
    }
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def cache_hits(log: Path) -> int:
    """Units that ccache answered, by its own log."""
    if not log.is_file():
        return 0
    words = log.read_text(encoding="utf-8", errors="replace").split()
    return sum(word in {"direct_cache_hit", "preprocessed_cache_hit"} for word in words)


def peak_mib(log: Sequence[Line]) -> int:
    """Most memory that units held at once, in MiB: an upper bound, each counts with its peak throughout."""
    changes = [(line.start, line.peak) for line in log] + [(line.end, -line.peak) for line in log]
    return max(accumulate(change for _, change in sorted(changes)), default=0) // 1024
