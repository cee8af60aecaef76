"""Checks of the failures of CUDA, NVML and sessions, and of whether the CPU is used instead.

The numbers are those of cuda.h, driver_types.h and nvml.h.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple

from builder.findings.check_container import ADVICE as CONTAINER
from builder.findings.check_container import wsl_500
from builder.findings.finding import Advice, CheckAdvice, Finding, Severity
from builder.findings.observations import NO_DEVICE, Observations, Outcome
from builder.formats.missing_kernels import CURE, NO_KERNEL, missing_kernel_cause

ADVICE = CheckAdvice(
    {
        "D021": Advice(
            Severity.ERROR,
            "The driver is older than the CUDA runtime needs: CUDA 12 asks for 525.60.13, CUDA 13 for 580.",
            "Update the NVIDIA driver; in a container, the host's.",
        ),
        "D022": Advice(
            Severity.ERROR,
            "The libraries hold no code for this GPU's compute capability: it is the wrong package.",
            "Run `install` again. It takes the package whose code runs on this GPU.",
        ),
        "D023": Advice(
            Severity.ERROR,
            "The GPU needs code compiled just in time, and the PTX is of a newer CUDA than the driver knows: "
            "minor-version compatibility is for finished code, not for PTX.",
            "Update the driver to one that serves the package's CUDA (575 for CUDA 12.9), or take a package "
            "with native code for this GPU.",
        ),
        "D024": Advice(
            Severity.ERROR,
            "The driver was updated while the old one stayed loaded: its kernel module and its libraries are "
            "of two versions. In a container, its libraries are those of another driver than the host's.",
            "Restart the machine. In a container, start a new one, and install no driver in an image.",
        ),
        "D025": Advice(
            Severity.ERROR,
            "CUDA's forward-compatibility libraries (cuda-compat) are in use, and those are for data-centre "
            "GPUs only.",
            "Take cuda-compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and update the driver instead.",
        ),
        "D026": Advice(
            Severity.ERROR,
            "A symbol is missing. At the start, the driver's libraries are incomplete; at a kernel, the "
            "CUDA libraries in use are older than those the package was built with.",
            "Install the driver again, and take other CUDA libraries out of LD_LIBRARY_PATH.",
        ),
        "D027": Advice(
            Severity.ERROR,
            "GPUs that are joined by NVSwitch work only once the fabric manager has set them up.",
            "`sudo systemctl enable --now nvidia-fabricmanager`, of exactly the driver's version.",
        ),
        "D028": Advice(
            Severity.ERROR,
            "The driver gives no cause (unknown error). Often the module nvidia_uvm or /dev/nvidia-uvm is "
            "missing, or the machine has been asleep.",
            "`sudo nvidia-modprobe -u -c 0`; after sleep `sudo rmmod nvidia_uvm && sudo modprobe "
            "nvidia_uvm`, or restart. `sudo dmesg | grep -i nvrm` has the driver's own words.",
        ),
        "D029": Advice(
            Severity.ERROR,
            "CUDA fails with a number that no other finding explains.",
            "In a session, 101 means that the device_id is none of the visible GPUs, 700 and 719 that a "
            "kernel failed: try another model. Where CUDA does not start, `sudo dmesg | grep -i nvrm` has "
            "the driver's own words, and a restart or a new installation of the driver repairs most of "
            "these failures.",
        ),
        "D030": Advice(
            Severity.ERROR,
            "The GPU has fallen off the bus: power, heat, a bad slot or a broken card.",
            "Restart. `sudo dmesg | grep -i xid` has the number that NVIDIA's list of Xid errors explains.",
        ),
        "D033": Advice(
            Severity.ERROR,
            "The GPU's memory is full: other programs have it, or the model and its batch need more than it "
            "has.",
            "`nvidia-smi` lists the programs that have it: end them. Else take a smaller model, batch or "
            "number type.",
        ),
        "D034": Advice(
            Severity.ERROR,
            "The loader finds the CUDA toolkit's stub of libcuda.so.1 before the driver's library. Programs "
            "are linked with a stub; it runs nothing.",
            "Take folders named stubs out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and remove a link "
            "libcuda.so.1 to a stub; in a container, start a new one with its GPUs (`docker run --gpus "
            "all`).",
        ),
        "D013": Advice(
            Severity.ERROR,
            "The driver hangs: a GPU that is lost, a reset that does not end, or a broken update.",
            "`sudo dmesg | grep -i -e nvrm -e xid` tells why; a restart clears it.",
        ),
        "D014": Advice(
            Severity.ERROR,
            "A library of the driver is damaged, incomplete, or not for this system.",
            "Install the driver again.",
        ),
        "D401": Advice(
            Severity.ERROR,
            "A session in the installed package does not run where it should: applications fail, or go on "
            "with the CPU.",
            "See the other findings first. If there are none, run `install` again, which tries the libraries "
            "out.",
        ),
        "D402": Advice(
            Severity.ERROR,
            "The package does not run on the CPU either: its host library is damaged, or another one is "
            "loaded.",
            "Run `install` again.",
        ),
        "D403": Advice(
            Severity.NOTE,
            "When a provider does not load, ONNX Runtime's Python module continues on the CPU and says so "
            "only in its log; get_available_providers() lists what was compiled in, not what works.",
            "After making a session compare session.get_providers() with what was asked for, or set the "
            "session option session.disable_cpu_ep_fallback to 1: then it is an error.",
        ),
        "D404": Advice(Severity.ERROR, NO_KERNEL, CURE),
        "D405": Advice(
            Severity.ERROR,
            "A library that the CUDA provider is linked with is missing: the package has lost it, or the "
            "provider of a Python wheel is used, which brings none.",
            "Run `install` again: it fetches what is missing. In a container, start the image as it was "
            "built. For the wheel's provider: `pip install onnxruntime-gpu[cuda,cudnn]`.",
        ),
    }
)

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


def failures(observed: Observations) -> List[NumberedFailure]:
    """Return the failures with a number, CUDA's first. That there is no GPU is not a failure."""
    return [*_of_cuda(observed), *_of_nvml(observed), *_of_trial(observed)]


def numbered_failures(observed: Observations) -> Iterator[Finding]:
    """Yield D021 to D030, D033, D034 or D105 where CUDA, NVML or a session fails with a number."""
    by_code: Dict[str, List[str]] = {}
    for failure in failures(observed):
        by_code.setdefault(failure.code, []).append(failure.text)
    works = f"The driver lists {observed.listed} GPU(s). " if observed.listed else ""
    for code, texts in by_code.items():
        sentence = f"{works}{'; '.join(texts)}."
        if code == "D026" and wsl_500(observed):
            yield CONTAINER.found("D105", f"{sentence} A container on WSL2, without libnvdxgdmal.so.1.")
        else:
            yield ADVICE.found(code, sentence)


def driver_library_failures(observed: Observations) -> Iterator[Finding]:
    """Yield D013 or D014 where NVML or libcuda does not answer in time, crashes or cannot be loaded."""
    for name in _LIBRARIES:
        reply = observed.reply(name)
        if reply.outcome == Outcome.TIMEOUT:
            yield ADVICE.found("D013", f"{name}: {reply.detail}.")
        elif reply.outcome == Outcome.FAILED and reply.code is None:
            yield ADVICE.found("D014", f"{name}: {reply.detail}.")


def _of_cuda(observed: Observations) -> Iterator[NumberedFailure]:
    reply = observed.reply("libcuda")
    if reply.code is not None and reply.code != NO_DEVICE:
        yield NumberedFailure(_CODES.get(reply.code, "D029"), f"CUDA fails: {reply.error} ({reply.code})")


def _of_nvml(observed: Observations) -> Iterator[NumberedFailure]:
    for name in ("NVML", "nvidia-smi"):
        reply = observed.reply(name)
        if reply.code in _NVML:
            yield NumberedFailure(_NVML[reply.code or 0], f"{name} fails: {reply.error} ({reply.code})")


def _of_trial(observed: Observations) -> Iterator[NumberedFailure]:
    tried = observed.trial
    if tried is not None and tried.code is not None and tried.code != NO_DEVICE:
        yield NumberedFailure(_CODES.get(tried.code, "D029"), f"A session fails: {tried.failure}")


def failed_session(observed: Observations) -> Iterator[Finding]:
    """Yield D401, D402, D404 or D405 where a session fails.

    A failure with a number on the GPU has its finding in ``numbered_failures``.
    """
    tried = observed.trial
    if tried is None or tried.failure is None:
        return
    if tried.on_cpu is False:
        where = f"A session fails on {tried.provider} ({tried.failure.rstrip('.')}), and on the CPU too."
        yield ADVICE.found("D402", where)
    elif tried.provider == "cpu":
        yield ADVICE.found("D402", f"A session on the CPU fails: {tried.failure}.")
    elif tried.code in (None, NO_DEVICE):
        yield _fails(observed, f"A session with {tried.provider} fails", tried.failure)


def failed_models(observed: Observations) -> Iterator[Finding]:
    """Yield D404 where a model needs a missing kernel, D405 a missing library, D401 for another failure."""
    for tried in observed.models:
        if tried.failure is not None:
            yield _fails(observed, f"{tried.model} does not open with {tried.provider}", tried.failure)


def _fails(observed: Observations, what: str, failure: str) -> Finding:
    sentence = f"{what}: {failure.rstrip('.')}."
    package = observed.installed.package if observed.installed else None
    ort = package.onnxruntime if package else None
    found = missing_kernel_cause(failure, package.name, ort.cannot_run, ort.host) if package and ort else None
    if found:
        return ADVICE.found("D404", sentence, **found._asdict())
    return ADVICE.found("D405" if _ABSENT.search(failure) else "D401", sentence)


def cpu_fallback(observed: Observations) -> Iterator[Finding]:
    """Yield D403 where the CPU is used instead of the GPU, or may be without a message."""
    tried = observed.trial
    if tried is not None and tried.on_cpu is True:
        yield ADVICE.found("D403", "A session on the GPU fails, and on the CPU it runs.")
    elif names := sorted({one.name for one in observed.distributions if "gpu" in one.name}):
        yield ADVICE.found("D403", f"A Python here has {' and '.join(names)}.")


RULES = (numbered_failures, driver_library_failures, failed_session, failed_models, cpu_fallback)
