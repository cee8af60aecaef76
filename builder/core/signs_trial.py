"""What a session of one node said, and how an application sees whether the GPU does the work."""

from __future__ import annotations

from typing import Iterator, Tuple

from builder.core.seen import Seen
from builder.core.signs_cuda import NO_DEVICE
from builder.core.symptom import Advice, Book, Rule, Severity, Symptom

BOOK = Book(
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
    }
)


def trial(seen: Seen) -> Iterator[Symptom]:
    """D401 and D402: a failure with a number has a code of its own."""
    tried = seen.trial
    if tried is None or tried.failure is None:
        return
    if tried.on_cpu is False or tried.provider == "cpu":
        yield BOOK.found("D402", f"A session on the CPU fails: {tried.failure}.")
    elif tried.code in (None, NO_DEVICE):
        yield BOOK.found("D401", f"A session with {tried.provider} fails: {tried.failure}.")


def fallback(seen: Seen) -> Iterator[Symptom]:
    """D403, where it is to be feared."""
    tried = seen.trial
    if tried is not None and tried.on_cpu is True:
        yield BOOK.found("D403", "A session on the GPU fails, and on the CPU it runs.")
    elif any("gpu" in one.name for one in seen.distributions):
        yield BOOK.found("D403", "A Python here has onnxruntime-gpu.")


RULES: Tuple[Rule, ...] = (trial, fallback)
