"""What a session of one node said, and how an application sees whether the GPU does the work."""

from __future__ import annotations

from typing import Iterator

from builder.findings.advice import Advice, Check, Fixes
from builder.findings.check_cuda import NO_DEVICE
from builder.findings.finding import Finding, Severity
from builder.findings.observed import Seen
from builder.formats.missing_kernels import CURE, NO_KERNEL, cause

FIX = Fixes(
    {
        "D401": Advice(
            Severity.ERROR,
            "A session in the installed package does not run where it should: applications fail, or go on "
            "with the CPU.",
            "See the other findings first. If there are none, run `install` again, which tries the libraries "
            "out.",
        ),
        "D402": Advice(
            Severity.ERROR,
            "The package does not even run on the CPU: its host library is damaged, or another one is "
            "loaded.",
            "Run `install` again.",
        ),
        "D403": Advice(
            Severity.NOTE,
            "ONNX Runtime's Python goes on with the CPU when a provider does not load, and says so in its "
            "log alone; get_available_providers() lists what was compiled in, not what works.",
            "After making a session compare session.get_providers() with what was asked for, or set the "
            "session option session.disable_cpu_ep_fallback to 1: then it is an error.",
        ),
        "D404": Advice(Severity.ERROR, NO_KERNEL, CURE),
    }
)


def trial(seen: Seen) -> Iterator[Finding]:
    """D401, D402 and D404: a failure with a number has a code of its own."""
    tried = seen.trial
    if tried is None or tried.failure is None:
        return
    if tried.on_cpu is False or tried.provider == "cpu":
        yield FIX.found("D402", f"A session on the CPU fails: {tried.failure}.")
    elif tried.code in (None, NO_DEVICE):
        yield _fails(seen, f"A session with {tried.provider} fails", tried.failure)


def models(seen: Seen) -> Iterator[Finding]:
    """D404, and D401 for models that fail for another reason."""
    for tried in seen.models:
        if tried.failure is not None:
            yield _fails(seen, f"{tried.model} does not open with {tried.provider}", tried.failure)


def _fails(seen: Seen, what: str, failure: str) -> Finding:
    said = f"{what}: {failure.rstrip('.')}."
    package = seen.installed.package if seen.installed else None
    ort = package.onnxruntime if package else None
    found = cause(failure, package.name, ort.cannot_run, ort.host) if package and ort else None
    return FIX.found("D404", said, **found._asdict()) if found else FIX.found("D401", said)


def fallback(seen: Seen) -> Iterator[Finding]:
    """D403, where it is to be feared."""
    tried = seen.trial
    if tried is not None and tried.on_cpu is True:
        yield FIX.found("D403", "A session on the GPU fails, and on the CPU it runs.")
    elif any("gpu" in one.name for one in seen.distributions):
        yield FIX.found("D403", "A Python here has onnxruntime-gpu.")


CHECK = Check("session", "D4", (trial, models, fallback), FIX)
