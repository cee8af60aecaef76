"""Run the client on hostile indexes, archives, server answers, prefixes and command lines, made from a seed.

``python -m tests.fuzz.client [--cases N] [--seed S] [--surface NAME]`` makes N cases of each surface. A case
that breaks a property of ``_problem`` is printed with its number; ``--only NUMBER`` repeats that case alone.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import pytest

from builder.client.arguments import EXIT_CODES
from builder.client.cli import INTERRUPTED
from tests.doubles.machine import Machine
from tests.fuzz.client_cases import FIRST, SURFACES, Field, seeded
from tests.fuzz.guard import confined

LONGEST = 2.0
"""Largest CPU time in seconds for a case."""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A case that broke a property."""

    surface: str
    number: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The result of a run: the number of cases, how many of them the client refused, and the broken ones."""

    cases: int
    refused: int
    broken: tuple[Broken, ...]


def run(cases: int, seed: int, surfaces: tuple[str, ...] = tuple(SURFACES), only: int | None = None) -> Tally:
    """Make and try ``cases`` cases of each surface; the same ``seed`` gives the same cases."""
    refused, broken, tried = 0, [], 0
    with tempfile.TemporaryDirectory(prefix="hostile-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # nothing cuts the power
        patch.setattr(tempfile, "tempdir", name)
        field = Field(Path(name))
        for surface in surfaces:
            for number in range(cases) if only is None else (only,):
                tried += 1
                code, reason = _try(field, surface, seeded(f"{seed} {surface} {number}"))
                refused += code != 0
                if reason:
                    broken.append(Broken(surface=surface, number=number, reason=reason))
    return Tally(cases=tried, refused=refused, broken=tuple(broken))


def _try(field: Field, surface: str, source: random.Random) -> tuple[int, str]:
    """Run the client on one case and return its exit code and what is wrong with its answer, if anything."""
    home = field.place / "home"
    home.mkdir()
    machine, code, reason = Machine(home), 0, ""
    try:
        with confined(field.place), contextmanager(SURFACES[surface])(field, machine, source) as argv:
            around, before = _paths(field.place, home), process_time()
            code = machine.run(*argv)
            took = process_time() - before
            reason = _problem(machine, argv, code, took)
            if not reason and surface in FIRST and argv[0] == "install":
                reason = _installed_wrongly(machine, code)
            if around != _paths(field.place, home):
                reason = "it changed something outside of its prefix"
    except Exception:  # noqa: BLE001 - any exception of the client is a defect
        reason = traceback.format_exc()
    shutil.rmtree(home)
    return code, reason


def _paths(place: Path, home: Path) -> set[Path]:
    return {path for path in place.rglob("*") if home not in path.parents}


def _problem(machine: Machine, argv: tuple[str, ...], code: int, took: float) -> str:
    """Return the property that an answer of the client breaks; ``""`` where it breaks none."""
    if code not in EXIT_CODES or code == INTERRUPTED:
        return f"exit code {code}"
    if code and not f"{machine.err}{machine.out}".strip():
        return "an error without a message"
    if argv[:1] != ("env",) and any(
        unicodedata.category(char) == "Cc" and char != "\n" for char in machine.out
    ):
        return f"a control character on the terminal: {machine.out!r}"
    if "--json" in argv and not {"--help", "--version", "--reference"}.intersection(argv):
        json.loads(machine.out)
    return f"{took:.1f} s of CPU time" if took > LONGEST else ""


def _installed_wrongly(machine: Machine, code: int) -> str:
    """Return what is wrong with the prefix after the first install there; ``""`` where nothing is."""
    if code:
        return "a package that was refused is in use" if (machine.prefix / "current").exists() else ""
    if "Nothing was installed" in machine.out:
        return ""
    return f"what was installed does not verify: {machine.err}" if machine.run("verify") else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.client", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="of each surface")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--surface", choices=SURFACES, action="append")
    parser.add_argument("--only", type=int, help="the number of one case")
    asked = parser.parse_args()
    found = run(asked.cases, asked.seed, tuple(asked.surface or SURFACES), asked.only)
    for one in found.broken:
        sys.stdout.write(f"{one.surface} {one.number}: {one.reason}\n")
    sys.stdout.write(f"{found.cases} cases, {found.refused} refused, {len(found.broken)} broken\n")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
