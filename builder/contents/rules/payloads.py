"""Rules for any library: its unpacked images (A010 to A014), and GPUs that ``--require`` names (A009).

``check_payloads`` is for any library, ``check_own_kernels`` for a library that this project compiled. ONNX
Runtime guards bodies of kernels by ``__CUDA_ARCH__ >= …``, so these are stubs on older architectures: 296
kernels on sm_60 in the official 1.21.0; 576 on sm_60 and four on sm_70 and sm_75 in 1.23.2; 14 on sm_75 in
1.31.1. In none of these releases is a kernel a stub while an older architecture of the same container has its
full code, nor are half of an architecture's kernels stubs.

A kernel that an image has under another name than the host registers cannot be launched on that architecture,
although the image counts as coverage: names of CUB's kernels hold the list of architectures. The official
wheels have two such kernels (``_NAMED_BY_ARCHITECTURE``) and no other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from builder.binary.coverage import Support
from builder.binary.deep import CodeTarget, DeepReading, Gap, Stub
from builder.binary.library import Inspected
from builder.binary.verdict import together
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import BY_CAPABILITY
from builder.finding import Code, Finding, Severity
from builder.formats.text import listed, printable

_SHOWN = 20
"""Most findings of a kind on single images and containers; further ones are only counted."""

_NAMED_BY_ARCHITECTURE = (
    "_ZN11onnxruntime7contrib4cuda20kDequantizeBlockwiseINS_8BFloat16E",
    "_ZN11onnxruntime7contrib4cuda26kgemm_4bit_inference_naiveINS_8BFloat16E",
)
"""Beginnings of names of ONNX Runtime's kernels whose template argument depends on ``__CUDA_ARCH__``: before
sm_80 it is ``BFloat16``, in the host's code ``__nv_bfloat16`` (sm_60, 70 and 75 of the wheel 1.23.2)."""


def check_payloads(path: str, deep: DeepReading) -> Iterator[Finding]:
    """Yield A010 to A012 as errors, and A013 as a note for each target that kernels are stubs for."""
    yield from _damages(path, deep)
    yield from _gaps(path, [gap for gap in deep.gaps if not gap.held])
    for target, stubs in _by_target(deep.stubs):
        whole = " ".join(map(str, dict.fromkeys(one for stub in stubs for one in stub.whole)))
        yield _stubs(path, stubs, target, f"more of them for {whole}", Severity.NOTE)


def check_own_kernels(path: str, deep: DeepReading) -> Iterator[Finding]:
    """Yield the findings of ``check_payloads``, A013 as an error where no guard explains it, and A014.

    No guard in ONNX Runtime's source explains stubs that are half of a target's kernels, or a stub whose full
    code is there for an older architecture. A014 is a warning for ``_NAMED_BY_ARCHITECTURE``.
    """
    for finding in check_payloads(path, deep):
        if finding.code is not Code.A013:
            yield finding
    yield from _unregistered(path, deep)
    for target, stubs in _by_target(deep.stubs):
        late = [stub for stub in stubs if any(_is_older(whole, target) for whole in stub.whole)]
        if 2 * len(stubs) >= deep.kernels[target]:
            every = f"half of its {deep.kernels[target]:,} kernels or more"
            yield _stubs(path, stubs, target, every, Severity.ERROR)
        elif late:
            yield _stubs(path, late, target, "whole on an older architecture", Severity.ERROR)
        else:
            yield _stubs(path, stubs, target, "guarded in its source", Severity.NOTE)


def _damages(path: str, deep: DeepReading) -> Iterator[Finding]:
    for damage in deep.damages[:_SHOWN]:
        message = f"the image for {damage.target} at {damage.offset:#x}: {damage.why}"
        yield Finding(Code.A010 if damage.packed else Code.A011, path, message)
    yield from _rest(Code.A011, path, deep.damages, "images are not what their headers say")


def _gaps(path: str, gaps: Sequence[Gap]) -> Iterator[Finding]:
    for gap in gaps[:_SHOWN]:
        message = f"the container at {gap.offset:#x} holds {_kernels(gap.lacking)}, and none for {gap.target}"
        yield Finding(Code.A012, path, message)
    yield from _rest(Code.A012, path, gaps, "images lack the kernels of their containers")


def _rest(code: Code, path: str, items: Sequence[object], what: str) -> Iterator[Finding]:
    if len(items) > _SHOWN:
        yield Finding(code, path, f"{len(items) - _SHOWN:,} more {what}")


def _unregistered(path: str, deep: DeepReading) -> Iterator[Finding]:
    for severity, is_known in ((Severity.ERROR, False), (Severity.WARNING, True)):
        kernels = [
            name for name in sorted(deep.unregistered) if name.startswith(_NAMED_BY_ARCHITECTURE) is is_known
        ]
        targets = {target for name in kernels for target in deep.names[name]}
        for target in sorted(targets, key=CodeTarget.order):
            mine = [name for name in kernels if target in deep.names[name]]
            message = f"{_kernels(len(mine))} for {target} cannot be launched: the host registers other names"
            yield Finding(Code.A014, path, f"{message}: {kernel_list(mine)}", severity=severity)


def _stubs(path: str, stubs: Sequence[Stub], target: CodeTarget, why: str, severity: Severity) -> Finding:
    names = kernel_list(stub.kernel for stub in stubs)
    what = f"{names} is a stub" if len(stubs) == 1 else f"{_kernels(len(stubs))} are stubs"
    which = "" if len(stubs) == 1 else f": {names}"
    return Finding(Code.A013, path, f"{what} on {target} ({why}){which}", severity=severity)


def _kernels(count: int) -> str:
    return f"{count:,} kernel{'s' * (count != 1)}"


def _by_target(stubs: Sequence[Stub]) -> Iterator[tuple[CodeTarget, list[Stub]]]:
    targets = dict.fromkeys(target for stub in stubs for target in stub.on)
    for target in sorted(targets, key=CodeTarget.order):
        yield target, [stub for stub in stubs if target in stub.on]


def _is_older(older: CodeTarget, target: CodeTarget) -> bool:
    return not older.arch.suffix and older.arch.number < target.arch.number


_NAMED = 3
"""Most different kernels that a message names; further ones are counted."""

_BEGIN = re.compile(r"_Z(N[rVK]*)?")

_PART = re.compile(r"L?(\d{1,4})")

_ANONYMOUS = "_GLOBAL__N_"


def short_name(mangled: str) -> str:
    """Return the readable beginning of a mangled name; a name that is not mangled is returned as it is.

    ``cutlass::Kernel`` of ``_ZN7cutlass6KernelINS_4gemm…``.
    """
    begin = _BEGIN.match(mangled)
    if begin is None:
        return mangled
    parts: list[str] = []
    at = begin.end()
    while (match := _PART.match(mangled, at)) and (begin[1] or not parts):
        at = match.end() + int(match[1])
        part = mangled[match.end() : at]
        parts.append("(anonymous)" if part.startswith(_ANONYMOUS) else part)
    return "::".join(parts) or mangled


def kernel_list(kernels: Iterable[str]) -> str:
    """Return a list of short names with their numbers: ``cutlass::Kernel (572), foo and 3 more``."""
    counts = Counter(map(short_name, kernels))
    shown = [name if count == 1 else f"{name} ({count:,})" for name, count in counts.most_common(_NAMED)]
    rest = sum(counts.values()) - sum(count for _name, count in counts.most_common(_NAMED))
    return f"{', '.join(shown)} and {rest:,} more" if rest else ", ".join(shown)


_FAILS = {
    Support.JIT: "by JIT alone (--jit-ok allows that)",
    Support.PARTIAL: "kernels missing",
    Support.NONE: "not at all",
}

_LIBRARIES_NAMED = 3
"""Most libraries that a finding names; further ones are counted."""


def check_required(
    libraries: Sequence[Inspected], required: Sequence[Capability], *, jit: bool
) -> Iterator[Finding]:
    """Yield A009 for each of ``required`` that does not run the libraries natively or (``jit``) by JIT."""
    verdicts = together(libraries, [BY_CAPABILITY[device] for device in required])
    enough = (Support.NATIVE, Support.JIT) if jit else (Support.NATIVE,)
    for device, verdict in verdicts.items():
        if not verdict.because:
            yield Finding(Code.A009, "", f"on {device}: its machines are ARM, and this is not")
        elif verdict.support not in enough:
            names = listed([printable(name) for name in verdict.because], _LIBRARIES_NAMED)
            message = f"on {device}: {_FAILS[verdict.support]}, because of {names}"
            yield Finding(Code.A009, verdict.because[0], message)
    if required and not verdicts:
        yield Finding(Code.A009, "", f"on any GPU: {_why_none(libraries)}")


def _why_none(libraries: Sequence[Inspected]) -> str:
    if any(item.raw for item in libraries):
        return "its device code lies outside of containers, so where it runs is not known"
    if any(item.coverage for item in libraries):
        return "there is nothing to run in its device code"
    if any(item.problem for item in libraries):
        return "there is no device code in what can be read here"
    return "there is no device code here"
