"""Rules for the versions of CUDA, cuDNN and nvcc that a set of architectures needs: findings C001 to C004.

Sources: NVIDIA's cuDNN support matrices 9.10.2 and 9.17.0, the CUDA Toolkit release notes 12.8 to 13.0 and
"CUDA Compatibility, Minor Version Compatibility"; rapids-cmake's documentation on ``-compress-mode``; ORT's
pull request 26307; the PTX ISA on renamed targets. Rules that depend on ORT's version are in
``onnxruntime.versions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.findings.finding import Code, Finding
from builder.gpu.architectures import Arch
from builder.gpu.cuda_toolkits import (
    NVCCS,
    assembles,
    compilable,
    compiles,
    dotted,
    first_cuda,
    is_made,
    last_cuda,
    version_of,
)
from builder.gpu.table import KNOWN_SM, RENAMED, Version
from builder.onnxruntime.versions import check_version, sm_names

_LAST_CUDNN_BELOW_75 = "9.10.2.21"

TURING = 75

_FIRST_CUDNN_75: Version = (9, 11)


@dataclass(frozen=True)
class _ToolkitChoice:
    """A variant's set and the versions that the rules judge together."""

    variant: str
    sm: tuple[Arch, ...]
    cuda: str
    cudnn: str
    nvcc: str | None
    ptxas: str | None

    @property
    def path(self) -> str:
        return f"variants.{self.variant}.sm"


def lint(
    *,
    variant: str,
    sm: Sequence[Arch],
    cuda: str,
    cudnn: str,
    ort: str,
    nvcc: str | None = None,
    ptxas: str | None = None,
) -> list[Finding]:
    """Return the findings on a set and its versions, those of ``check_version`` for ``ort`` included.

    ``nvcc``: the base's version, ``None`` before a base is chosen. ``ptxas``: the version of a newer ptxas
    that assembles nvcc's PTX for architectures that nvcc does not know, ``None`` without one.
    """
    subject = _ToolkitChoice(variant, tuple(sm), cuda, cudnn, nvcc, ptxas)
    found = [finding for rule in _RULES for finding in rule(subject)]
    return [*found, *check_version(subject.path, subject.sm, ort, cuda, compiling=nvcc is not None)]


def _cudnn_dropped(subject: _ToolkitChoice) -> Iterator[Finding]:
    lost = [arch for arch in subject.sm if arch.number < TURING]
    if lost and version_of(subject.cudnn) >= _FIRST_CUDNN_75:
        yield Finding(
            code=Code.C001,
            path=subject.path,
            message="cuDNN 9.11 and newer have no kernels for Maxwell, Pascal and Volta "
            "(NVIDIA's cuDNN support matrix)",
            wanted=f"cudnn.version {_LAST_CUDNN_BELOW_75}, the last one with them{_or_set(subject, lost)}",
            got=f"cuDNN {subject.cudnn} with {sm_names(lost)}",
        )


def _cuda_dropped(subject: _ToolkitChoice) -> Iterator[Finding]:
    gone = [arch for arch in subject.sm if _is_gone(arch, subject.cuda)]
    lost = [arch for arch in gone if arch.number not in RENAMED]
    if lost:
        yield Finding(
            code=Code.C002,
            path=subject.path,
            message="CUDA 13 compiles for sm_75 and newer (CUDA 13.0 release notes)",
            wanted=f"cuda.version 12.9, the last one with them{_or_set(subject, lost)}",
            got=f"CUDA {subject.cuda} with {sm_names(lost)}",
        )
    for arch in gone:
        if arch.number in RENAMED:
            yield _renamed(subject, arch)


def _renamed(subject: _ToolkitChoice, arch: Arch) -> Finding:
    now = Arch(*divmod(RENAMED[arch.number], 10), arch.suffix)
    kept = sorted({now if one == arch else one for one in subject.sm})
    return Finding(
        code=Code.C002,
        path=subject.path,
        message=f"sm_{arch} is called sm_{now} since CUDA 13 (PTX ISA 9.0)",
        wanted=f"the set {_numbers(kept)}, or cuda.version 12.9",
        got=f"CUDA {subject.cuda} with sm_{arch}",
    )


def _is_gone(arch: Arch, cuda: str) -> bool:
    last = last_cuda(arch)
    return last is not None and last < version_of(cuda)[:2]


def _cuda_too_old(subject: _ToolkitChoice) -> Iterator[Finding]:
    for arch in subject.sm:
        first = first_cuda(arch)
        if first is not None and version_of(subject.cuda) < first:
            yield Finding(
                code=Code.C003,
                path=subject.path,
                message=f"sm_{arch} came with CUDA {dotted(first)} (CUDA release notes)",
                wanted=f"cuda.version {dotted(first)} {_until(arch)}{_or_set(subject, [arch])}",
                got=f"CUDA {subject.cuda} with sm_{arch}",
            )


def _out_of_reach(subject: _ToolkitChoice) -> Iterator[Finding]:
    if subject.nvcc is None:
        return
    reach = compilable(subject.nvcc)
    lost = [arch for arch in subject.sm if not is_made(subject.nvcc, subject.ptxas, arch)]
    if lost:
        yield Finding(
            code=Code.C004,
            path=subject.path,
            message=f"the base's nvcc {subject.nvcc} compiles {_span(reach)} (CUDA release notes)"
            + _by_ptxas(subject.nvcc, subject.ptxas),
            wanted=", or ".join(_ways_out(subject, lost)),
            got=sm_names(lost),
        )


_RULES: tuple[Callable[[_ToolkitChoice], Iterator[Finding]], ...] = (
    _cudnn_dropped,
    _cuda_dropped,
    _cuda_too_old,
    _out_of_reach,
)


def _until(arch: Arch) -> str:
    last = last_cuda(arch)
    return f"to {dotted(last)}" if last else "or newer"


def _by_ptxas(nvcc: str, ptxas: str | None) -> str:
    if ptxas is None:
        return ""
    numbers = [number for number in KNOWN_SM if assembles(nvcc, ptxas, Arch(*divmod(number, 10)))]
    return f", ptxas {ptxas} adds sm_{' '.join(map(str, numbers))} without a suffix" if numbers else ""


def _ways_out(subject: _ToolkitChoice, lost: Sequence[Arch]) -> Iterator[str]:
    """Yield as text the oldest nvcc for the whole set, if any, and the set without ``lost``, if not empty."""
    fits = (nvcc for nvcc in NVCCS if all(compiles(nvcc, arch) for arch in subject.sm))
    nvcc = next(fits, None)
    kept = [arch for arch in subject.sm if arch not in lost]
    if nvcc is not None:
        yield f"a base with nvcc {nvcc} (--base nvidia)"
    if kept:
        yield f"the set {_numbers(kept)}"


def _or_set(subject: _ToolkitChoice, lost: Sequence[Arch]) -> str:
    kept = [arch for arch in subject.sm if arch not in lost]
    return f", or the set {_numbers(kept)}" if kept else ""


def _numbers(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, arches))


def _span(numbers: Sequence[int]) -> str:
    return f"sm_{numbers[0]} to sm_{numbers[-1]}" if numbers else "nothing we know"
