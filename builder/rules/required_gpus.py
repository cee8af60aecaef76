"""Rule for the GPUs that ``inspect --require`` names: finding A009."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.binary.coverage import Support
from builder.binary.library import Inspected
from builder.binary.verdict import together
from builder.findings.finding import Code, Finding
from builder.formats.text import listed, printable
from builder.gpu.architectures import Capability
from builder.gpu.table import BY_CAPABILITY

_FAILS = {
    Support.JIT: "by JIT alone (--jit-ok allows that)",
    Support.PARTIAL: "some kernels missing",
    Support.NONE: "not at all",
}

_NAMED = 3
"""Most libraries that a finding names; further ones are counted."""


def check_required(
    libraries: Sequence[Inspected], required: Sequence[Capability], *, jit: bool
) -> Iterator[Finding]:
    """Yield A009 for each of ``required`` that does not run the libraries natively or (``jit``) by JIT."""
    found = together(libraries, [BY_CAPABILITY[device] for device in required])
    enough = (Support.NATIVE, Support.JIT) if jit else (Support.NATIVE,)
    for device, verdict in found.items():
        if not verdict.because:
            yield Finding(Code.A009, "", f"on {device}: its machines are ARM, and this is not")
        elif verdict.support not in enough:
            names = listed([printable(name) for name in verdict.because], _NAMED)
            message = f"on {device}: {_FAILS[verdict.support]}, because of {names}"
            yield Finding(Code.A009, verdict.because[0], message)
    if required and not found:
        yield Finding(Code.A009, "", f"on any GPU: {_why_none(libraries)}")


def _why_none(libraries: Sequence[Inspected]) -> str:
    """Return why none of the libraries has anything to run that is judged."""
    if any(item.raw for item in libraries):
        return "its device code lies outside of containers, so where it runs is not known"
    if any(item.coverage for item in libraries):
        return "there is nothing to run in its device code"
    if any(item.problem for item in libraries):
        return "there is no device code in what can be read here"
    return "there is no device code here"
