"""Which ORT version goes with which architectures and toolkit: findings C005 to C010 over ``ortversions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from builder.findings.finding import Code, Finding, Severity
from builder.formats.versions import parse
from builder.gpu.architectures import Arch
from builder.onnxruntime.toolchain import refused
from builder.onnxruntime.versions import (
    BLACKWELL_ALONE_BREAKS,
    HALF_EMPTY,
    HALF_IN_CONTRIB,
    OLD_ALONE_BREAKS,
    REFUSES_FAMILIES,
    is_known,
    known_line,
    needs,
)

_FIRST_FULL_HALF, _TURING, _CONSUMER_BLACKWELL = 53, 75, 120

_CMAKE = "3.31.6"
"""The newest CMake whose ``Modules/Internal/CMakeCUDAArchitecturesValidate.cmake`` was read."""


@dataclass(frozen=True)
class Asked:
    """A set of architectures, and what it is to be compiled with."""

    path: str
    """The key of the set."""
    sm: tuple[Arch, ...]
    ort: str
    cuda: str
    compiling: bool
    """Whether it is decided that this ORT is compiled: only then CMake's rules matter."""
    contrib: bool = True
    """Whether contrib operators are compiled too: profile full."""


def hold_version(asked: Asked) -> Iterator[Finding]:
    """What this ORT version, known or not, has against the set and the toolkit."""
    for rule in _RULES:
        yield from rule(asked)


def _only_blackwell(asked: Asked) -> Iterator[Finding]:
    only = bool(asked.sm) and all(arch.number >= _CONSUMER_BLACKWELL for arch in asked.sm)
    if only and asked.compiling and asked.contrib and BLACKWELL_ALONE_BREAKS.holds(asked.ort):
        yield Finding(
            code=Code.C005,
            path=asked.path,
            message=f"ONNX Runtime 1.27.0 and 1.27.1: {BLACKWELL_ALONE_BREAKS.what} "
            f"({BLACKWELL_ALONE_BREAKS.source})",
            wanted=f"profile lean, the set 90 {_numbers(asked.sm)}, or onnxruntime 1.26 or 1.28.0",
            got=f"onnxruntime {asked.ort} with {_names(asked.sm)}",
        )


def _half(asked: Asked) -> Iterator[Finding]:
    weak = [arch for arch in asked.sm if arch.number < _FIRST_FULL_HALF]
    if not weak:
        return
    rule = HALF_EMPTY if HALF_EMPTY.holds(asked.ort) else HALF_IN_CONTRIB
    kept = [arch for arch in asked.sm if arch not in weak]
    yield Finding(
        code=Code.C006,
        path=asked.path,
        message=f"{rule.what} ({rule.source}). fp16 models may give wrong numbers there: ship fp32 or int8",
        wanted="fp16 models only on sm_53 and newer" + (f", or the set {_numbers(kept)}" if kept else ""),
        got=_names(weak),
        severity=Severity.WARNING,
    )


def _unknown(asked: Asked) -> Iterator[Finding]:
    if not is_known(asked.ort):
        yield Finding(
            code=Code.C007,
            path="onnxruntime",
            message=f"the rules of ONNX Runtime {asked.ort} were never looked up: those of "
            f"{known_line(asked.ort)}, the nearest that is known, are used",
            wanted="a version from 1.21 to 1.31, or onnxruntime/versions.py extended from its CMake files",
            got=asked.ort,
            severity=Severity.WARNING,
        )


def _families(asked: Asked) -> Iterator[Finding]:
    """ORT's own CMake file stops at them, or CMake itself may: certain is only what was read."""
    families = [arch for arch in asked.sm if arch.suffix == "f"]
    if not families or not asked.compiling:
        return
    stopped = refused(asked.sm, asked.ort)
    by_ort = f"ONNX Runtime {asked.ort}'s own CMake refuses the suffix f ({REFUSES_FAMILIES.source})"
    by_cmake = f"CMake {_CMAKE} refuses the suffix f in CMAKE_CUDA_ARCHITECTURES; newer ones were not tried"
    yield Finding(
        code=Code.C008,
        path=asked.path,
        message=by_ort if stopped else by_cmake,
        wanted="each architecture of the family by itself: 100 103, or 120 121",
        got=_names(families),
        severity=Severity.ERROR if stopped else Severity.WARNING,
    )


def _cuda_too_old(asked: Asked) -> Iterator[Finding]:
    least = needs(asked.ort)
    if asked.compiling and parse(asked.cuda)[:2] < parse(least.cuda):
        yield Finding(
            code=Code.C009,
            path=asked.path,
            message=f"ONNX Runtime {asked.ort} is compiled with CUDA {least.cuda} or newer ({least.source})",
            wanted=f"cuda.version {least.cuda} or newer",
            got=f"CUDA {asked.cuda}",
        )


def _only_old(asked: Asked) -> Iterator[Finding]:
    only = bool(asked.sm) and all(arch.number < _TURING for arch in asked.sm)
    if only and asked.compiling and asked.contrib and OLD_ALONE_BREAKS.holds(asked.ort):
        yield Finding(
            code=Code.C010,
            path=asked.path,
            message=f"{OLD_ALONE_BREAKS.what} ({OLD_ALONE_BREAKS.source}). It may not load then",
            wanted=f"profile lean, the set {_numbers(asked.sm)} 75, or onnxruntime 1.26 and older",
            got=f"onnxruntime {asked.ort} with {_names(asked.sm)}",
            severity=Severity.WARNING,
        )


_RULES: tuple[Callable[[Asked], Iterator[Finding]], ...] = (
    _only_blackwell,
    _half,
    _unknown,
    _families,
    _cuda_too_old,
    _only_old,
)


def _numbers(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, arches))


def _names(arches: Iterable[Arch]) -> str:
    return ", ".join(f"sm_{arch}" for arch in arches)
