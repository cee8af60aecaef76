"""This benchmark compiles the units that take most memory again and again, in a container with a limit.

    python -m benchmarks.heaviest [--units 12] [--runs 10] [--jobs N] [--memory 8G] [--json FILE]

The units are the CUDA units with the highest peaks in the sample of ``benchmarks.pieces``, compiled for
``modern``. ``builder/inside/drive.py`` compiles them as ``./run build --memory`` does, each time from an
empty ccache, ``--jobs`` at once (default: one for each core). The container has that memory and no swap, so
the kernel kills a compiler where units that run at once need more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.pieces import ROOT, configured_image, count, result_file, sample
from builder.app.flags import parse_memory
from builder.errors import BuilderError, ValidationError
from builder.inside import costs

_CUDA_UNITS = 40
"""The number of CUDA units in the sample."""

_VARIANT = "modern"

_RUNS = """\
KILLS="/sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events"
cd /build
ninja $(ninja -t targets all | sed -n 's/^\\(\\S*\\.pb\\.h\\): .*/\\1/p') >/dev/null
for run in $(seq "$RUNS"); do
    rm -rf /ccache /build/units.log /build/runs.log /build/record.json $UNITS
    mkdir /ccache
    status=0
    drive $UNITS >/tmp/log 2>&1 || { status=$?; tail -n 30 /tmp/log >&2; }
    kills=$(sed -n 's/^oom_kill //p' $KILLS 2>/dev/null || true)
    [ -n "$kills" ] || { echo "$KILLS: no number of killed processes" >&2; exit 1; }
    echo $status $kills $(cat /build/record.json || echo {})
done
"""
"""The script after the compile step's variables. It prints for each run ``drive.py``'s status, the number of
kills since the first run, and the record."""

Row = Mapping[str, object]


def main() -> None:
    """Print a line for each run; the exit status is 1 if a compiler failed or was killed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heaviest")
    for name, number in (("units", 12), ("runs", 10)):
        parser.add_argument(f"--{name}", type=count, default=number)
    parser.add_argument("--jobs", type=count, default=0)
    parser.add_argument("--memory", type=_memory, default="8G")
    parser.add_argument("--json", type=result_file)
    asked = parser.parse_args()
    if asked.units > _CUDA_UNITS:
        parser.error(f"--units {asked.units}: the sample has {_CUDA_UNITS}")
    rows: list[Row] = []
    for row in _runs(heaviest(asked.units), asked.runs, asked.jobs, asked.memory):
        rows.append(row)
        print(f"run {len(rows)}: {json.dumps(row)}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    sys.exit(any(row["status"] or row["oom_kills"] for row in rows))


def _memory(text: str) -> int:
    try:
        return parse_memory(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def heaviest(number: int) -> list[str]:
    """Return the objects of the sample's CUDA units with the highest peaks, the heaviest first."""
    known = costs.read(ROOT / "builder/inside/costs.tsv")
    return sorted(sample(_CUDA_UNITS, 1)[:-1], key=lambda unit: -known[unit].peak)[:number]


def _runs(units: Sequence[str], runs: int, jobs: int, memory: int) -> Iterator[Row]:
    """Yield the status, the number of kills so far, and the record of each run."""
    with configured_image(_VARIANT) as (name, text):
        limits = [f"--memory={memory}", f"--memory-swap={memory}"]
        given = {
            "JOBS": jobs,
            "MEMORY_MIB": memory >> 20,
            "AHEAD": "",
            "RUNS": runs,
            "UNITS": " ".join(units),
        }
        env = [f"--env={variable}={value}" for variable, value in given.items()]
        argv = ["docker", "run", "--rm", "--init", "--network=none", *limits, *env, name]
        script = f"{of_step(text)}{_RUNS}"
        with subprocess.Popen([*argv, "bash", "-euc", script], stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout or ():
                status, kills, record = line.split(maxsplit=2)
                yield {"status": int(status), "oom_kills": int(kills), **json.loads(record)}
    if running.returncode:
        raise SystemExit(f"the container ended with status {running.returncode}")


def of_step(dockerfile: str) -> str:
    """Return the compile step's variables, and its call of ``drive.py`` as a function of the targets."""
    step = dockerfile.rpartition("FROM source AS build\n")[2]
    variables = re.findall(r"^(?:export [A-Z_]+=.*|[a-z]+=\$\(.*)\n", step, re.MULTILINE)
    drive = re.findall(r"^python3 -m builder\.inside\.drive (?:.*\\\n)+", step, re.MULTILINE)
    return f'{"".join(variables)}drive() {{\n{drive[0]}"$@"\n}}\n'


if __name__ == "__main__":
    try:
        main()
    except BuilderError as error:
        sys.exit(f"error: {error}")
