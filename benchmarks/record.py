"""This program runs a command and stores its output in docs/results, which ``./run docs`` puts into pages.

    python -m benchmarks.record [--note TEXT] NAME COMMAND...

The file begins with the command, the date, the commit and the machine, to which ``--note`` adds what else
matters. ``first-build`` is shortened: of its lines those of ``_KEPT`` stay. Other outputs stay whole.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import answer
from builder.build.verbs.pages import FACTS, result_file

ROOT = Path(__file__).resolve().parent.parent

_KEPT = re.compile(
    r"• plan|✓ (check|bundle|unpack|run|complete)|  ortpacks-|  models ran"
    r"|  (base|origin|ort|native|jit|needs) |  lib(cufft|onnxruntime_providers_cuda)\."
)

_SHORTER = (
    (re.compile(r"(sha256 [0-9a-f]{12})[0-9a-f]{52}"), r"\1…"),
    (re.compile(r"((?:SASS|PTX)(?: [0-9]+[af]?){4})(?: [0-9]+[af]?){5,}"), r"\1 …"),
)


def main() -> None:
    """Run the command and write the result. A command that fails ends the program and leaves the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record")
    parser.add_argument("--note", metavar="TEXT", help="what else matters of the machine")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    begin = time.perf_counter()
    output = answer(asked.command, cwd=ROOT).stdout.rstrip("\n").splitlines()
    took = f"{time.perf_counter() - begin:,.0f} s"
    is_shortened = asked.name == "first-build"
    facts = (
        shlex.join(asked.command),
        datetime.now(UTC).date().isoformat(),
        answer(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).stdout.strip(),
        ", ".join(filter(None, (machine(), asked.note, f"took {took}", "shortened" * is_shortened))),
    )
    head = [f"{key}: {value}" for key, value in zip(FACTS, facts, strict=True)]
    lines = shortened(output) if is_shortened else output
    result_file(ROOT, asked.name).write_text("\n".join([*head, "", *lines, ""]), encoding="utf-8")


def machine() -> str:
    """Return the system, the cores and the memory of this machine."""
    system = platform.freedesktop_os_release()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = system["NAME"].split()[0]
    return f"{name} {system.get('VERSION_ID', '')}, {os.cpu_count()} cores, {memory:.0f} GiB"


def shortened(lines: list[str]) -> list[str]:
    """Return the kept lines of a build, with long digests and lists of architectures cut."""
    kept = [line for line in lines if _KEPT.match(line)]
    for pattern, short in _SHORTER:
        kept = [pattern.sub(short, line) for line in kept]
    return kept


if __name__ == "__main__":
    main()
