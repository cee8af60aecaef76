"""Checks of the failures of CUDA, NVML and sessions, and of whether the CPU is used instead.

The numbers are those of cuda.h, driver_types.h and nvml.h.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, NamedTuple

from builder.client.doctor.advice import MachineFinding, finding
from builder.client.doctor.check_machine import wsl_500
from builder.client.doctor.observations import NO_DEVICE, Observations, Outcome
from builder.formats.missing_kernels import missing_kernel_cause
from builder.formats.text import grouped

_CODES: Dict[int, str] = {
    2: "D033",
    34: "D034",
    35: "D021",
    209: "D022",
    222: "D023",
    500: "D026",
    802: "D027",
    803: "D024",
    804: "D025",
    999: "D028",
}

_NVML: Dict[int, str] = {15: "D030", 18: "D024"}
"""NVML's error number → finding. nvidia-smi exits with the same numbers."""

_LIBRARIES = ("NVML", "libcuda")

_ABSENT = re.compile(
    r"\blib(cudnn|cudart|cublas|cufft|curand)\w*\.so[.\d]*: cannot open shared object file"
    r'|"(cudnn|cudart|cublas|cufft)\w*\.dll" which is missing'
)
"""Messages for an absent library that packages hold: Linux's loader's, and ONNX Runtime's on Windows."""


class NumberedFailure(NamedTuple):
    """A failure with a number: the code of its finding, and a text with its source."""

    code: str
    text: str


def failures(observed: Observations) -> Iterator[NumberedFailure]:
    """Yield the failures with a number, CUDA's first. That there is no GPU is not a failure."""
    cuda, tried = observed.reply("libcuda"), observed.trial
    if cuda.code is not None and cuda.code != NO_DEVICE:
        yield NumberedFailure(_CODES.get(cuda.code, "D029"), f"CUDA fails: {cuda.error} ({cuda.code})")
    for name in ("NVML", "nvidia-smi"):
        reply = observed.reply(name)
        if reply.code in _NVML:
            yield NumberedFailure(_NVML[reply.code or 0], f"{name} fails: {reply.error} ({reply.code})")
    if tried is not None and tried.code is not None and tried.code != NO_DEVICE:
        yield NumberedFailure(_CODES.get(tried.code, "D029"), f"A session fails: {tried.failure}")


def numbered_failures(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D021 to D030, D033, D034 or D105 where CUDA, NVML or a session fails with a number."""
    by_code = grouped((failure.code, failure.text) for failure in failures(observed))
    works = f"The driver lists {observed.listed} GPU(s). " if observed.listed else ""
    for code, texts in by_code.items():
        sentence = f"{works}{'; '.join(texts)}."
        if code == "D026" and wsl_500(observed):
            yield finding("D105", f"{sentence} A container on WSL2, without libnvdxgdmal.so.1.")
        else:
            yield finding(code, sentence)


def driver_library_failures(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D013 or D014 where NVML or libcuda does not answer in time, crashes or cannot be loaded."""
    for name in _LIBRARIES:
        reply = observed.reply(name)
        if reply.outcome == Outcome.TIMEOUT:
            yield finding("D013", f"{name}: {reply.detail}.")
        elif reply.outcome == Outcome.FAILED and reply.code is None:
            yield finding("D014", f"{name}: {reply.detail}.")


def failed_session(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D401, D402, D404 or D405 where a session fails.

    A failure with a number on the GPU has its finding in ``numbered_failures``.
    """
    tried = observed.trial
    if tried is None or tried.failure is None:
        return
    if tried.on_cpu is False:
        where = f"A session fails on {tried.provider} ({tried.failure.rstrip('.')}), and on the CPU too."
        yield finding("D402", where)
    elif tried.provider == "cpu":
        yield finding("D402", f"A session on the CPU fails: {tried.failure}.")
    elif tried.code in (None, NO_DEVICE):
        yield _fails(observed, f"A session with {tried.provider} fails", tried.failure)


def failed_models(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D404 where a model needs a missing kernel, D405 a missing library, D401 for another failure."""
    for tried in observed.models:
        if tried.failure is not None:
            yield _fails(observed, f"{tried.model} does not open with {tried.provider}", tried.failure)


def _fails(observed: Observations, what: str, failure: str) -> MachineFinding:
    sentence = f"{what}: {failure.rstrip('.')}."
    package = observed.installed.package if observed.installed else None
    ort = package.onnxruntime if package else None
    cause = missing_kernel_cause(failure, package.name, ort.cannot_run, ort.host) if package and ort else None
    if cause:
        return finding("D404", sentence, **cause._asdict())
    return finding("D405" if _ABSENT.search(failure) else "D401", sentence)


def cpu_fallback(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D403 where the CPU is used instead of the GPU, or may be without a message."""
    tried = observed.trial
    if tried is not None and tried.on_cpu is True:
        yield finding("D403", "A session on the GPU fails, and on the CPU it runs.")
    elif names := sorted(
        {distribution.name for distribution in observed.distributions if "gpu" in distribution.name}
    ):
        yield finding("D403", f"A Python here has {' and '.join(names)}.")


RULES = (numbered_failures, driver_library_failures, failed_session, failed_models, cpu_fallback)
