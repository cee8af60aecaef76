"""Tables of a library's answers to all tests, which run in batches, each in a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.config.inputs import ort_wheel
from tests.answers import pairs
from tests.answers.pairs import Pair
from tests.answers.worker import INEXPRESSIBLE
from tests.support import ROOT, ran

BATCH = 400
"""Number of tests in a process. After a crash the next process continues with the next test."""
_LIMIT = 300
"""Time limit of a batch in seconds; an idle machine takes one."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The verdict on a test, or the kind of error."""

    said: str
    digest: str
    """sha256 of the outputs' bytes; empty without outputs."""


Table = Mapping[str, Answer]
"""Answers by the test's name."""


def ask_library(pair: Pair, cases: Sequence[Path], env: Mapping[str, str], provider: str) -> Table:
    """Return a library's answers by the C API. ``provider``: ``cpu``, or ``cuda`` with a fallback to it."""
    return _ask(("tests.answers.worker", pair.library, provider), cases, env)


def ask_wheel(version: str, cases: Sequence[Path], env: Mapping[str, str]) -> Table:
    """Return the official wheel's answers by its Python API, on the CPU."""
    wheel = pairs.store().unpack(ort_wheel(version))
    return _ask(("tests.answers.wheelworker", wheel), cases, env)


def differing(mine: Table, other: Table) -> list[str]:
    """Return a line for each test whose verdict differs, except tests that one of the APIs cannot express."""
    assert mine.keys() == other.keys()
    return [
        f"{name}: {mine[name].said} | {other[name].said}"
        for name in mine
        if mine[name].said != other[name].said and not inexpressible(mine[name], other[name])
    ]


def inexpressible(*answers: Answer) -> bool:
    """Return whether an API could not express a test's inputs or outputs."""
    return any(answer.said.startswith(INEXPRESSIBLE) for answer in answers)


def _ask(worker: Sequence[str | Path], cases: Sequence[Path], env: Mapping[str, str]) -> Table:
    found: dict[str, Answer] = {}
    while len(found) < len(cases):
        batch = cases[len(found) : len(found) + BATCH]
        argv = [sys.executable, "-m", *map(str, worker)]
        text = "".join(f"{case}\n" for case in batch)
        done = ran(argv, cwd=ROOT, env=env, given=text, timeout=_LIMIT)
        found.update(_heard(done.stdout))
        if done.returncode:
            found[cases[len(found)].name] = Answer(said=_crash(done), digest="")
    return found


def _heard(lines: str) -> dict[str, Answer]:
    entries = map(json.loads, lines.splitlines())
    return {entry["case"]: Answer(said=entry["said"], digest=entry["digest"]) for entry in entries}


def _crash(done: subprocess.CompletedProcess[str]) -> str:
    """Return the verdict on a process that a signal ended. Raises ``AssertionError`` for any other."""
    if done.returncode > 0:
        raise AssertionError(f"the worker failed:\n{done.stderr[-3000:]}")
    return f"crashed: {signal.Signals(-done.returncode).name}"
