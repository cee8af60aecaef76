"""Checks of the failures of CUDA, NVML and sessions, and of whether the CPU is used instead.

The numbers are those of cuda.h, driver_types.h and nvml.h.
"""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

from builder.client.doctor.advice import MachineFinding, finding
from builder.client.doctor.check_machine import access_lost, linux_driver_in_wsl, wsl_500
from builder.client.doctor.messages import code_of_number, explain
from builder.client.doctor.missing_library import cudnn_that_fits, missing_library, wheel_that_fits
from builder.client.doctor.observations import NO_DEVICE, Observations, Outcome
from builder.formats.missing_kernels import missing_kernel_cause
from builder.formats.text import grouped

_NVML: Dict[int, str] = {15: "D030", 17: "D111", 18: "D024"}
"""NVML's error number → finding. nvidia-smi exits with the same numbers."""

_UNKNOWN = ("D028", "D029")
"""CUDA's own words give no cause: where another finding has one, these are its consequence."""


def failures(observed: Observations) -> Iterator[Tuple[str, str]]:
    """Yield the failures with a number, CUDA's first: the code of the finding, and a text with its source.

    That there is no GPU is not a failure.
    """
    cuda, tried = observed.reply("libcuda"), observed.trial
    if cuda.code is not None and cuda.code != NO_DEVICE:
        yield code_of_number(cuda.code) or "D029", f"CUDA fails: {cuda.error} ({cuda.code})"
    for name in ("NVML", "nvidia-smi"):
        reply = observed.reply(name)
        if reply.code in _NVML:
            yield _NVML[reply.code or 0], f"{name} fails: {reply.error} ({reply.code})"
    if tried is not None and tried.code is not None and tried.code != NO_DEVICE:
        yield code_of_number(tried.code) or "D029", f"A session fails: {tried.failure}"


def numbered_failures(observed: Observations) -> Iterator[MachineFinding]:
    """Yield a finding of ``messages.json`` or D105 where CUDA, NVML or a session fails with a number."""
    lost = any(True for rule in (access_lost, linux_driver_in_wsl) for _ in rule(observed))
    works = f"The driver lists {observed.listed} GPU(s). " if observed.listed else ""
    for code, texts in grouped(failures(observed)).items():
        if lost and code in _UNKNOWN:
            continue
        sentence = f"{works}{'; '.join(texts)}."
        if code == "D026" and wsl_500(observed):
            yield finding("D105", f"{sentence} A container on WSL2, without libnvdxgdmal.so.1.")
        else:
            yield finding(code, sentence)


def driver_library_failures(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D013 or D014 where NVML or libcuda does not answer in time, crashes or cannot be loaded."""
    for name in ("NVML", "libcuda"):
        reply = observed.reply(name)
        if reply.outcome == Outcome.TIMEOUT:
            yield finding("D013", f"{name}: {reply.detail}.")
        elif reply.outcome == Outcome.FAILED and reply.code is None:
            yield finding("D014", f"{name}: {reply.detail}.")


def failed_session(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D402, D404, or the finding of the message where a session fails.

    A failure with a number on the GPU has its finding in ``numbered_failures``, one that names a damaged file
    of a package in ``damaged_package``.
    """
    tried = observed.trial
    if tried is None or tried.failure is None or any(file in tried.failure for file in _damaged(observed)):
        return
    if tried.on_cpu is False:
        where = f"A session fails on {tried.provider} ({tried.failure.rstrip('.')}), and on the CPU too."
        yield finding("D402", where)
    elif tried.provider == "cpu":
        yield finding("D402", f"A session on the CPU fails: {tried.failure}.")
    elif tried.code == NO_DEVICE:
        listed = f"The driver lists {observed.listed} GPU(s) here." if observed.listed else ""
        yield finding("D038", f"A session fails: {tried.failure}.", here=listed)
    elif tried.code is None:
        host = tried.registered_by
        what = f"{host} does not register the plug-in" if host else f"A session with {tried.provider} fails"
        yield explained(observed, what, tried.failure)


def _damaged(observed: Observations) -> Iterator[str]:
    for package in filter(None, (observed.installed, observed.outside)):
        yield from (problem.partition(":")[0].rpartition("/")[2] for problem in package.problems)


def failed_models(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D404 where a model needs a missing kernel, the finding of its message for another failure."""
    for tried in observed.models:
        if tried.failure is not None:
            yield explained(observed, f"{tried.model} does not open with {tried.provider}", tried.failure)


def broken_imports(observed: Observations) -> Iterator[MachineFinding]:
    """Yield the finding of the message with which a Python fails to import onnxruntime."""
    for broken in observed.broken_imports:
        what = f"The Python of {broken.folder} cannot import onnxruntime"
        cause = explained(observed, what, broken.failure)
        yield _broken(observed, broken.folder, cause.seen) if cause.code == "D311" else cause


def _broken(observed: Observations, folder: str, seen: str) -> MachineFinding:
    names = [(one.name, one.version) for one in observed.distributions if one.folder == folder]
    again = "`pip list` shows which one is left: `pip install --force-reinstall --no-deps NAME`"
    if names:
        again = f"`pip install --force-reinstall --no-deps {names[0][0]}=={names[0][1]}`"
    if len(names) > 1:
        remove = f"`pip uninstall {' '.join(name for name, _ in names)}`, then install one of them alone."
        return finding("D311", seen, do=remove)
    return finding("D311", seen, do=f"{again} with that Python.")


def explained(observed: Observations, what: str, failure: str) -> MachineFinding:
    """Return the finding for a message: what it says, in this machine; D401 where no cause is known."""
    sentence = f"{what}: {failure.rstrip('.')}."
    package = observed.installed.package if observed.installed else None
    ort = package.onnxruntime if package else None
    cause = missing_kernel_cause(failure, package.name, ort.cannot_run, ort.host) if package and ort else None
    if cause:
        return finding("D404", sentence, **cause._asdict())
    code, values = explain(failure, observed.devices) or ("", {})
    library = missing_library(observed, failure, sentence)
    if library and code not in ("D406", "D418"):
        return library
    if not code:
        return finding("D401", sentence)
    if code == "D416" and (observed.plugin_wheels or (package and package.plugin)):
        return finding("D316", sentence)
    hosts = f". Here are {', '.join(observed.hosts)}" if observed.hosts else ""
    cuda = (observed.installed and observed.installed.cuda) or "12"
    if code == "D311":
        return _broken(observed, "", sentence)
    defaults = {"part": "A part", "branch": "of the same branch", "here": "", "path": hosts}
    filled = {
        **defaults,
        "cuda": cuda.partition(".")[0],
        "wheel": wheel_that_fits(observed),
        **{key: text for key, text in values.items() if text},
        "version": cudnn_that_fits(observed, values.get("version") or "9"),
    }
    return finding(code, sentence, **filled)


def cpu_fallback(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D403 where the CPU is used instead of the GPU, or may be without a message."""
    tried = observed.trial
    if tried is not None and tried.on_cpu is True:
        yield finding("D403", "A session on the GPU fails, and on the CPU it runs.")
    elif names := sorted(
        {distribution.name for distribution in observed.distributions if "gpu" in distribution.name}
    ):
        yield finding("D403", f"A Python here has {' and '.join(names)}.")


RULES = (
    numbered_failures,
    driver_library_failures,
    failed_session,
    failed_models,
    broken_imports,
    cpu_fallback,
)
