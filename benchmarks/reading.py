"""This benchmark compares our native reader of device code with cuobjdump on the same libraries, in turn.

    python -m benchmarks.reading FOLDER|LIBRARY...                        cuobjdump of the toolchain image
    python -m benchmarks.reading --cuobjdump PROGRAM FOLDER|LIBRARY...    another one, on this machine

Our side is a whole process: interpreter, reading, and coverage for every capability. cuobjdump lists SASS and
PTX, as a check has to, in one container for all libraries; the start of the container is not counted. The
first round warms the page cache and is not counted.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

from benchmarks.measuring import answer
from builder.inspect.reading import inspect

ROUNDS = 3
LISTINGS = """
begin=$(date +%s.%N)
for library in "$@"; do
    for kind in elf ptx; do
        "$CUOBJDUMP" --list-$kind "$library" >/dev/null 2>&1
        code=$?
        case $code in
            0 | 255) ;;
            *) echo "$library: cuobjdump --list-$kind left with code $code" >&2; exit 1 ;;
        esac
    done
done
echo "$begin $(date +%s.%N)"
"""
"""Script that prints when it began and ended. cuobjdump exits with 255 for a library without device code."""


def main() -> None:
    """Print the seconds of both sides, their ratio, and the native side's peak memory."""
    asked = _arguments()
    libraries = [library for path in asked.paths for library in _libraries(path)]
    if asked.native:
        _read(libraries)
        return
    native, cuobjdump, said = [], [], ""
    for _ in range(ROUNDS + 1):
        seconds, said = _native(libraries)
        native.append(seconds)
        cuobjdump.append(_cuobjdump(asked.cuobjdump, libraries))
    size = sum(library.stat().st_size for library in libraries)
    print(f"{len(libraries)} libraries, {size / 1e9:.2f} GB; {said}")
    for name, seconds_of in (("native", native[1:]), ("cuobjdump", cuobjdump[1:])):
        low, middle, high = min(seconds_of), statistics.median(seconds_of), max(seconds_of)
        print(f"{name:<10} {low:7.2f} {middle:7.2f} {high:7.2f} s  (min, median, max of {ROUNDS})")
    print(f"ratio      {statistics.median(cuobjdump[1:]) / statistics.median(native[1:]):7.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading")
    parser.add_argument("--cuobjdump", metavar="PROGRAM", help="not the toolchain image's")
    parser.add_argument("--native", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER|LIBRARY")
    return parser.parse_args()


def _libraries(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file.resolve() for file in path.iterdir() if ".so" in file.name)
    return [path.resolve()]


def _native(libraries: list[Path]) -> tuple[float, str]:
    """Return the seconds of a whole process of our reader, and the line that it prints."""
    begin = time.perf_counter()
    argv = [sys.executable, "-m", "benchmarks.reading", "--native", *map(str, libraries)]
    said = answer(argv).stdout.strip()
    return time.perf_counter() - begin, said


def _read(libraries: list[Path]) -> None:
    found = list(inspect((library.name, library) for library in libraries))
    problems = [f"{one.name}: {one.problem}" for one in found if one.problem]
    if problems:
        sys.exit("\n".join(problems))
    containers = sum(one.coverage.containers for one in found if one.coverage)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{containers:,} containers read natively, peak memory {peak:.0f} MiB")


def _cuobjdump(program: str | None, libraries: list[Path]) -> float:
    """Return the seconds that cuobjdump takes to list all libraries, by the clock where it runs."""
    script = ["sh", "-c", LISTINGS, "sh", *map(str, libraries)]
    if program:
        argv = ["env", f"CUOBJDUMP={program}", *script]
    else:
        mounts = [f"--volume={folder}:{folder}:ro" for folder in {library.parent for library in libraries}]
        argv = ["docker", "run", "--rm", *mounts, "--env=CUOBJDUMP=cuobjdump", _toolchain(), *script]
    begin, end = map(float, answer(argv).stdout.split())
    return end - begin


def _toolchain() -> str:
    """Return the tag of the toolchain image that `./run build` makes."""
    argv = ["docker", "images", "--format={{.Repository}}:{{.Tag}}", "ortpacks/toolchain"]
    tags = answer(argv).stdout.split()
    if not tags:
        sys.exit("No ortpacks/toolchain image: `./run build --variant modern` makes it.")
    return tags[0]


if __name__ == "__main__":
    main()
