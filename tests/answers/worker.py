"""Run of tests in a process of its own: ``worker LIBRARY PROVIDER`` with the tests' folders on stdin.

PROVIDER is ``cpu``, ``cuda`` (with the CPU as its fallback) or ``gpu`` (CUDA without a fallback). The process
prints a line of JSON for each test, in order and without a buffer: a crash belongs to the first test without
a line.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from builder.formats.ort_api import OrtStatusError
from builder.prove.virtualcard.worker import Session, SessionSettings
from tests.answers.cases import Sample, samples
from tests.answers.values import InexpressibleError, Value, ValueApi, ValueSession
from tests.answers.verdict import PASSED, judge

INEXPRESSIBLE = "inexpressible"
"""Verdict on a test that an API cannot express, in the form ``INEXPRESSIBLE: why``."""


class Runs(Protocol):
    """An open session of any API."""

    def run(self, inputs: Sequence[Value]) -> list[Value]: ...
    def close(self) -> None: ...


Opener: TypeAlias = Callable[[Path], Runs]


def main(arguments: list[str]) -> None:
    """Run the tests on stdin with the library and provider that ``arguments`` name."""
    library, provider = arguments
    with ValueApi(Path(library), log=unheard) as api:
        report(open_with(api, provider))


def report(opener: Opener) -> None:
    """Print the verdict on each test that stdin names; ``opener`` opens its model."""
    for line in sys.stdin:
        case = Path(line.strip())
        said, digest = answer(case, opener)
        print(json.dumps({"case": case.name, "said": said, "digest": digest}), flush=True)  # noqa: T201


def answer(case: Path, opener: Opener) -> tuple[str, str]:
    """Return the verdict on a test, or the kind of error, and the sha256 of its outputs."""
    try:
        session = opener(case / "model.onnx")
        try:
            return _judged(session, samples(case))
        finally:
            session.close()
    except OrtStatusError as error:
        return f"error: {error.kind}", ""
    except InexpressibleError as limit:
        return f"{INEXPRESSIBLE}: {limit}", ""


def unheard(place: str, message: str) -> None:
    """Ignore a message of a session's log."""


def open_with(api: ValueApi, provider: str) -> Callable[[Path], ValueSession]:
    """Return a function that opens models on ``provider``, with the CPU's provider as its fallback."""

    def opened(model: Path) -> ValueSession:
        session = Session(api, model, SessionSettings(cuda=provider != "cpu"))
        assert provider != "gpu" or session.refusal is None, session.refusal
        return ValueSession(api, session)

    return opened


def _judged(session: Runs, data: Iterable[Sample]) -> tuple[str, str]:
    seen = hashlib.sha256()
    for sample in data:
        got = session.run(sample.inputs)
        _digest(got, seen)
        said = judge(got, sample.expected)
        if said != PASSED:
            return said, seen.hexdigest()
    return PASSED, seen.hexdigest()


def _digest(values: Sequence[Value], seen: hashlib._Hash) -> None:
    for value in values:
        if isinstance(value, list):
            _digest(value, seen)
        elif value is not None:
            texts = value.dtype == object
            seen.update(repr(value.ravel().tolist()).encode() if texts else value.tobytes())


if __name__ == "__main__":
    main(sys.argv[1:])
