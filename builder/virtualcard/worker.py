"""Opens models under the stand-in: ``worker HOST FOLDER``, in a process of its own, ``jobs.json`` in FOLDER.

A line of JSON for each goes to ``answers.jsonl`` at once: a crash belongs to the first model without one.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TypedDict

import numpy as np

from builder.virtualcard.capi import Api, OrtError
from builder.virtualcard.opening import NO_RUNTIME, Answer
from builder.virtualcard.session import Session, Wish
from builder.virtualcard.values import InexpressibleError

_PLACEMENT = "VerifyEachNodeIsAssignedToAnEp"
_HEADING = re.compile(r"\s*(?:Node\(s\)|All nodes) placed on \[(\w+)\]\. Number of nodes: (\d+)")
_NODE = re.compile(r"  (\S+) \((.*)\)$")
"""ORT's verbose log (``core/framework/session_state.cc``), which lists none where all are on one provider."""


class Job(TypedDict):
    """A model to open; ``feed`` is an ``.npz`` of its inputs, with which it is run."""

    model: str
    level: int
    feed: str | None


class Placement:
    """Listens to ORT's log for where each node goes."""

    def __init__(self) -> None:
        self.nodes: Counter[tuple[str, str, str]] = Counter()
        self._wanted: dict[str, int] = {}
        self._provider = ""

    def listen(self, place: str, message: str) -> None:
        """Take one message and the place in ORT's source that it comes from."""
        if _PLACEMENT not in place:
            return
        if heading := _HEADING.match(message):
            self._provider = heading[1]
            self._wanted[heading[1]] = int(heading[2])
        elif node := _NODE.match(message):
            self.nodes[self._provider, node[1], node[2]] += 1

    def take(self) -> list[tuple[str, str, str, int]]:
        """What was heard since the last call. Raises ``ValueError`` for a line that was not understood."""
        found = self.nodes
        if len(self._wanted) == 1:
            ((provider, count),) = self._wanted.items()
            found = Counter({(provider, "every node", ""): count})
        elif found.total() != sum(self._wanted.values()):
            raise ValueError(f"{found.total()} nodes were listed, {self._wanted} were announced")
        self.drop()
        return [(*node, count) for node, count in found.items()]

    def drop(self) -> list[tuple[str, str, str, int]]:
        """Forget what was heard; it is of a session without CUDA."""
        self.nodes, self._wanted = Counter(), {}
        return []


def main(host: str, folder: str) -> None:
    """See the module."""
    jobs: list[Job] = json.loads((Path(folder) / "jobs.json").read_text(encoding="utf-8"))
    placement = Placement()
    try:
        api = Api(Path(host), log=placement.listen)
    except (OSError, AttributeError) as error:
        sys.stderr.write(str(error))
        sys.exit(NO_RUNTIME)
    with api, (Path(folder) / "answers.jsonl").open("w", encoding="utf-8") as answers:
        for job in jobs:
            answers.write(json.dumps(_answer(api, job, placement, Path(folder) / "report.txt")) + "\n")
            answers.flush()


def _answer(api: Api, job: Job, placement: Placement, report: Path) -> Answer:
    error = ""
    try:
        error = _open(api, job)
        nodes = placement.take() if not error else placement.drop()
    except (OrtError, InexpressibleError) as refusal:
        error, nodes = str(refusal), placement.take()
    ctypes.CDLL(None).virtualcard_report(str(report).encode())
    answer = Answer(error=error, nodes=nodes, containers=[], kernels=[], calls=[])
    libraries = _Libraries()
    for line in report.read_text(encoding="utf-8").splitlines():
        kind, name, *numbers = line.split("\t")
        if kind == "container":
            refused, jit, _, kernels = map(int, numbers)
            answer["containers"].append((libraries.at(int(name, 16)), refused, jit, kernels))
        elif kind == "kernel":
            answer["kernels"].append((name, int(numbers[0]), int(numbers[1])))
        else:
            answer["calls"].append((name, int(numbers[0])))
    return answer


def _open(api: Api, job: Job) -> str:
    """Why the CUDA provider was not there, if it was not. Raises ``OrtError``, ``InexpressibleError``."""
    session = Session(api, Path(job["model"]), Wish(verbose=True, level=job["level"]))
    try:
        if session.refusal is None and job["feed"] is not None:
            values = dict(np.load(job["feed"]))
            session.run([values[name] for name in session.inputs])
    finally:
        session.close()
    return session.refusal or ""


class _Libraries:
    """Which library an address lies in."""

    def __init__(self) -> None:
        self._maps = []
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6:  # noqa: PLR2004 the last is the path
                start, end = (int(number, 16) for number in fields[0].split("-"))
                self._maps.append((start, end, Path(fields[5]).name))

    def at(self, address: int) -> str:
        """The file name; empty where nothing is mapped."""
        return next((name for start, end, name in self._maps if start <= address < end), "")


if __name__ == "__main__":
    main(*sys.argv[1:])
