"""This program runs a command and stores its output in docs/results, which ``./run docs`` puts into pages.

    python -m benchmarks.record [--note TEXT] NAME COMMAND...
    python -m benchmarks.record [--note TEXT] --release-tier [NAME...]

The file begins with the command, the date, the commit and the machine, to which ``--note`` adds what else
matters. Builds are shortened: of their lines those of ``_KEPT`` stay. Other outputs stay whole.

The release tier has the tests that take hours, which no run of ``./run test`` holds.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import answer
from builder.build.verbs.pages import FACTS, result_file

ROOT = Path(__file__).resolve().parent.parent

_KEPT = re.compile(r"• plan|✓ (bundle|run)|  ortpacks-|  (origin|ort|native|jit|needs) ")

_FUZZ = (".venv/bin/python", "-m")
_BUILD = ("./run", "build", "--origin", "source", "--base", "assembled", "--release", "--dist", "dist/tier")

_SERVE = (
    *("env", "ORTPACKS_TEST_TIMES=2000", "ORTPACKS_TEST_SECONDS=60"),
    *(".venv/bin/python", "-m", "pytest", "-q"),
)

RELEASE_TIER = {
    "fuzz-readers": (*_FUZZ, "tests.fuzz", "--executions", "1000000"),
    "fuzz-client": (*_FUZZ, "tests.fuzz.client", "--cases", "20000"),
    "build-legacy": (*_BUILD, "--variant", "legacy"),
    "build-modern": (*_BUILD, "--variant", "modern"),
    "build-latest": (*_BUILD, "--variant", "latest"),
    "serve-hostile": (*_SERVE, "tests/component/service/test_memory.py", "-k=hostile"),
    "serve-largest": (
        *(*_SERVE, "--images", "--thorough", "tests/images/test_service_image.py"),
        "-k=largest_requests or 200_clients",
    ),
    "serve-mixed": (
        *(*_SERVE, "--images", "--thorough", "tests/images/test_service_image.py"),
        "-k=mixed_hostile",
    ),
}
"""Commands by the name of their result."""

_SKIPPED = re.compile(r"\b\d+ skipped\b")
"""What pytest says of tests that did not run; its exit code does not."""

_DIGEST = re.compile(r"(sha256 [0-9a-f]{12})[0-9a-f]{52}")


def main() -> None:
    """Run the commands and write their results. One that fails ends the program and leaves its old result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else matters of the machine")
    parser.add_argument("--release-tier", action="store_true", help=f"of: {', '.join(RELEASE_TIER)}")
    parser.add_argument("words", metavar="NAME", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    name, *command = asked.words or [""]
    if not asked.release_tier:
        if not command:
            parser.error("a name and a command are wanted")
        record(name, command, asked.note)
        return
    if unknown := {*asked.words} - {*RELEASE_TIER}:
        parser.error(f"{', '.join(sorted(unknown))}: not in the release tier")
    for chosen in asked.words or RELEASE_TIER:
        record(chosen, RELEASE_TIER[chosen], asked.note)


def record(name: str, command: Sequence[str], note: str) -> None:
    """Run the command and write its output, date, commit and machine to ``docs/results/NAME.txt``."""
    begin = time.perf_counter()
    output = answer([*command], cwd=ROOT).stdout.rstrip("\n").splitlines()
    took = f"{time.perf_counter() - begin:,.0f} s"
    if any(_SKIPPED.search(line) for line in output):
        sys.exit(f"{name}: a test was skipped, which shows nothing: {output[-1]}")
    is_shortened = name == "first-build" or name.startswith("build-")
    facts = (
        shlex.join(command),
        datetime.now(UTC).date().isoformat(),
        answer(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).stdout.strip(),
        ", ".join(filter(None, (machine(), note, f"took {took}", "shortened" * is_shortened))),
    )
    head = [f"{key}: {value}" for key, value in zip(FACTS, facts, strict=True)]
    lines = shortened(output) if is_shortened else output
    result_file(ROOT, name).write_text("\n".join([*head, "", *lines, ""]), encoding="utf-8")


def machine() -> str:
    """Return the system, the cores and the memory of this machine."""
    system = platform.freedesktop_os_release()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = system["NAME"].split()[0]
    return f"{name} {system.get('VERSION_ID', '')}, {os.cpu_count()} cores, {memory:.0f} GiB"


def shortened(lines: list[str]) -> list[str]:
    """Return the kept lines of a build, with digests cut."""
    return [_DIGEST.sub(r"\1…", line) for line in lines if _KEPT.match(line)]


if __name__ == "__main__":
    main()
