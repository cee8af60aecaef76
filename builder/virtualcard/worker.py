"""The child process ``worker HOST FOLDER``, which opens the models of ``FOLDER/jobs.json`` on the stand-in.

Each model's answer is written to ``FOLDER/answers.jsonl`` at once, as a line of JSON. So the first model
without an answer is the one that crashed the process.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from pathlib import Path
from typing import TypedDict

import numpy as np
from onnx import helper

from builder.formats.ort_api import OrtStatusError
from builder.formats.session_log import Placement
from builder.virtualcard.capi import LoggedApi, Session, SessionSettings, tensor
from builder.virtualcard.sessions import NO_RUNTIME, CardAnswer


class SessionJob(TypedDict):
    """A model to open; ``feed`` is an ``.npz`` file of inputs to run it with, ``None`` for opening only."""

    model: str
    level: int
    feed: str | None
    config: dict[str, str]
    seconds: int


def main(host: str, folder: str) -> None:
    """Open every model of ``jobs.json`` and write its line to ``answers.jsonl``."""
    jobs: list[SessionJob] = json.loads((Path(folder) / "jobs.json").read_text(encoding="utf-8"))
    placement = Placement()
    try:
        api = LoggedApi(Path(host), log=placement.add_message)
    except (OSError, AttributeError) as error:
        sys.stderr.write(str(error))
        sys.exit(NO_RUNTIME)
    with api, (Path(folder) / "answers.jsonl").open("w", encoding="utf-8") as answers:
        for job in jobs:
            signal.alarm(job["seconds"])  # SIGALRM ends the process by default
            answers.write(json.dumps(_answer(api, job, placement, Path(folder) / "report.txt")) + "\n")
            answers.flush()


def _answer(api: LoggedApi, job: SessionJob, placement: Placement, report: Path) -> CardAnswer:
    placement.reset()
    try:
        error = _open(api, job)
        nodes = [] if error else placement.nodes_by_kind()
    except OrtStatusError as refusal:
        error, nodes = str(refusal), placement.nodes_by_kind()
    ctypes.CDLL(None).virtualcard_report(str(report).encode())
    answer = CardAnswer(
        error=error,
        nodes=nodes,
        no_kernel=sorted(placement.no_kernel),
        unsupported=sorted(placement.unsupported),
        cheaper=sorted(placement.cheaper),
        containers=[],
        kernels=[],
        calls=[],
    )
    for line in report.read_text(encoding="utf-8").splitlines():
        kind, name, *rest = line.split("\t")
        numbers = [int(number) for number in rest]
        if kind == "container":
            refused, jit, kernels = numbers
            answer["containers"].append((name, refused, jit, kernels))
        elif kind == "kernel":
            answer["kernels"].append((name, numbers[0], numbers[1]))
        else:
            answer["calls"].append((name, numbers[0]))
    return answer


def _open(api: LoggedApi, job: SessionJob) -> str:
    """Open and run a model. Return why there was no CUDA provider, empty with one.

    Raises ``OrtStatusError`` for a model that fails.
    """
    session = Session(
        api, Path(job["model"]), SessionSettings(verbose=True, level=job["level"], config=job["config"])
    )
    try:
        if session.refusal is None and job["feed"] is not None:
            _run(api, session, Path(job["feed"]))
    finally:
        session.close()
    return session.refusal or ""


def _run(api: LoggedApi, session: Session, feed: Path) -> None:
    """Run a model once and discard the outputs, which are meaningless because no kernel computed them."""
    with np.load(feed) as arrays:
        feeds = [np.require(arrays[name], requirements="C") for name in session.inputs]
    values = [tensor(api, one, one.shape, helper.np_dtype_to_tensor_dtype(one.dtype)) for one in feeds]
    try:
        values += session.run(values)
    finally:
        for value in values:
            api.release("ReleaseValue", value)


if __name__ == "__main__":
    main(*sys.argv[1:])
