"""Which toolkit, cuDNN, ORT and driver go with which architectures: a matrix as data, and the rules over it.

Sources: NVIDIA's cuDNN support matrices 9.10.2 and 9.17.0, the CUDA Toolkit release notes 12.8 to 13.0 and
"CUDA Compatibility, Minor Version Compatibility"; rapids-cmake's documentation on ``-compress-mode``; ORT's
pull request 26307; the PTX ISA on renamed targets. What depends on ORT's version is ``core.ortversions``'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from builder.core.arch import Arch
from builder.core.checks import Code, Finding
from builder.core.ortsupport import Asked, hold_version

Version = Tuple[int, ...]


@dataclass(frozen=True)
class Reach:
    """From which CUDA on an architecture can be compiled, and up to which; ``last`` is inclusive."""

    number: int
    first: Version
    last: Optional[Version] = None


_LAST_12 = (12, 9)
_REACH = (
    *(Reach(number, (11, 0), _LAST_12) for number in (50, 52, 53, 60, 61, 62, 70, 72)),
    *(Reach(number, (11, 0)) for number in (75, 80)),
    *(Reach(number, (11, 1)) for number in (86,)),
    *(Reach(number, (11, 4)) for number in (87,)),
    *(Reach(number, (11, 8)) for number in (89, 90)),
    *(Reach(number, (12, 8)) for number in (100, 120)),
    Reach(101, (12, 8), _LAST_12),
    *(Reach(number, (12, 9)) for number in (103, 121)),
    Reach(110, (13, 0)),
)
"""Source: the CUDA release notes."""

_RENAMED = {101: 110}
"""Since CUDA 13. Source: the PTX ISA, "sm_101 renamed to sm_110 from PTX ISA version 9.0"."""

KNOWN_SM: Tuple[int, ...] = tuple(sorted(reach.number for reach in _REACH))
"""Every architecture from Maxwell on; there is no sm_91."""

_NVCCS = ("12.4", "12.8", "12.9", "13.0")
_FIRST_WITH: Mapping[str, Version] = {"": (0,), "a": (12, 0), "f": (12, 9)}
"""First CUDA with a suffix. Source: the PTX ISA: sm_90a came with 8.0, the families with 8.8."""
_LAST_CUDNN_BELOW_75 = "9.10.2.21"
_FIRST_CUDNN_75: Version = (9, 11)
_TURING, _BLACKWELL = 75, 100

FLOOR_12 = "525.60.13"
FLOOR_ZSTD = "550.54.14"
FLOOR_BLACKWELL = "570.26"
FLOOR_13 = "580.65.06"
LAST_BRANCH_BELOW_75 = "580"


@dataclass(frozen=True)
class _Subject:
    """What is linted, its versions as numbers."""

    variant: str
    sm: Tuple[Arch, ...]
    cuda: str
    cudnn: str
    nvcc: Optional[str]
    ptxas: Optional[str]

    def at(self, key: str) -> str:
        return f"variants.{self.variant}.{key}"


def lint(
    *,
    variant: str,
    sm: Sequence[Arch],
    cuda: str,
    cudnn: str,
    ort: str,
    nvcc: Optional[str] = None,
    ptxas: Optional[str] = None,
    contrib: bool = True,
) -> List[Finding]:
    """Every rule that the set breaks, before a byte is compiled; ``nvcc`` once the base is chosen.

    ``ptxas``: version of a newer one that assembles nvcc's PTX for what nvcc does not know. ``contrib``:
    whether contrib operators are compiled.
    """
    subject = _Subject(variant, tuple(sm), cuda, cudnn, nvcc, ptxas)
    found = [finding for rule in _RULES for finding in rule(subject)]
    asked = Asked(subject.at("sm"), subject.sm, ort, cuda, compiling=nvcc is not None, contrib=contrib)
    return [*found, *hold_version(asked)]


def driver_window(
    sass: Iterable[Arch], cuda: str, *, jit: bool = False, compressed: bool = False
) -> Tuple[str, Optional[str]]:
    """Oldest driver version, and the last driver branch that still knows these GPUs (``None``: no end known).

    ``sass``: the architectures of the provider's SASS. ``jit``: a promised GPU runs PTX only.
    ``compressed``: images for GPUs before Blackwell are packed with zstd. A driver compiles PTX of its own
    CUDA version and older. Not settled: PTX of 12.9 may need 575, as NVIDIA's rule has it; its matrix names
    570.26 for 12.8 and 12.9 together, and so do we.
    """
    numbers = {arch.number for arch in sass}
    if _version(cuda) >= (13,):
        floor = FLOOR_13
    elif any(number >= _BLACKWELL for number in numbers) or (jit and _version(cuda) >= (12, 8)):
        floor = FLOOR_BLACKWELL
    else:
        floor = FLOOR_ZSTD if compressed else FLOOR_12
    only_old = bool(numbers) and all(number < _TURING for number in numbers)
    return floor, LAST_BRANCH_BELOW_75 if only_old else None


def compilable(nvcc: str) -> Tuple[int, ...]:
    """The architectures an nvcc of this version can compile."""
    version = _version(nvcc)[:2]
    return tuple(
        reach.number
        for reach in sorted(_REACH, key=lambda reach: reach.number)
        if reach.first <= version and (reach.last is None or version <= reach.last)
    )


def _cudnn_dropped(subject: _Subject) -> Iterator[Finding]:
    lost = [arch for arch in subject.sm if arch.number < _TURING]
    if lost and _version(subject.cudnn) >= _FIRST_CUDNN_75:
        yield Finding(
            code=Code.C001,
            path=subject.at("sm"),
            message="cuDNN 9.11 and newer have no kernels for Maxwell, Pascal and Volta "
            "(NVIDIA's cuDNN support matrix)",
            wanted=f"cudnn.version {_LAST_CUDNN_BELOW_75}, the last one with them{_or_set(subject, lost)}",
            got=f"cuDNN {subject.cudnn} with {_names(lost)}",
        )


def _cuda_dropped(subject: _Subject) -> Iterator[Finding]:
    gone = [arch for arch in subject.sm if _is_gone(arch, subject.cuda)]
    lost = [arch for arch in gone if arch.number not in _RENAMED]
    if lost:
        yield Finding(
            code=Code.C002,
            path=subject.at("sm"),
            message="CUDA 13 compiles for sm_75 and newer (CUDA 13.0 release notes)",
            wanted=f"cuda.version 12.9, the last one with them{_or_set(subject, lost)}",
            got=f"CUDA {subject.cuda} with {_names(lost)}",
        )
    for arch in gone:
        if arch.number in _RENAMED:
            yield _renamed(subject, arch)


def _renamed(subject: _Subject, arch: Arch) -> Finding:
    number = _RENAMED[arch.number]
    now = Arch(number // 10, number % 10, arch.suffix)
    kept = sorted({now if one == arch else one for one in subject.sm})
    return Finding(
        code=Code.C002,
        path=subject.at("sm"),
        message=f"sm_{arch} is called sm_{now} since CUDA 13 (PTX ISA 9.0)",
        wanted=f"the set {_numbers(kept)}, or cuda.version 12.9",
        got=f"CUDA {subject.cuda} with sm_{arch}",
    )


def _is_gone(arch: Arch, cuda: str) -> bool:
    last = _last_cuda(arch)
    return last is not None and last < _version(cuda)[:2]


def _cuda_too_old(subject: _Subject) -> Iterator[Finding]:
    for arch in subject.sm:
        first = _first_cuda(arch)
        if first is not None and _version(subject.cuda)[:2] < first:
            yield Finding(
                code=Code.C003,
                path=subject.at("sm"),
                message=f"sm_{arch} came with CUDA {_dotted(first)} (CUDA release notes)",
                wanted=f"cuda.version {_dotted(first)} {_until(arch)}{_or_set(subject, [arch])}",
                got=f"CUDA {subject.cuda} with sm_{arch}",
            )


def _out_of_reach(subject: _Subject) -> Iterator[Finding]:
    if subject.nvcc is None:
        return
    reach = compilable(subject.nvcc)
    lost = [arch for arch in subject.sm if not _is_made(subject.nvcc, subject.ptxas, arch)]
    if lost:
        yield Finding(
            code=Code.C004,
            path=subject.at("sm"),
            message=f"the base's nvcc {subject.nvcc} compiles {_span(reach)} (CUDA release notes)"
            + _by_ptxas(subject.nvcc, subject.ptxas),
            wanted=", or ".join(_ways_out(subject, lost)),
            got=_names(lost),
        )


_RULES: Tuple[Callable[[_Subject], Iterator[Finding]], ...] = (
    _cudnn_dropped,
    _cuda_dropped,
    _cuda_too_old,
    _out_of_reach,
)


def _version(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _first_cuda(arch: Arch) -> Optional[Version]:
    """First CUDA that compiles for ``arch``; ``None`` when it is not one we know."""
    first = next((reach.first for reach in _REACH if reach.number == arch.number), None)
    return None if first is None else max(first, _FIRST_WITH[arch.suffix])


def _last_cuda(arch: Arch) -> Optional[Version]:
    """Last CUDA that compiles for ``arch``; ``None`` while it is still served."""
    return next((reach.last for reach in _REACH if reach.number == arch.number), None)


def _until(arch: Arch) -> str:
    last = _last_cuda(arch)
    return f"to {_dotted(last)}" if last else "or newer"


def _by_ptxas(nvcc: str, ptxas: Optional[str]) -> str:
    if ptxas is None:
        return ""
    numbers = [number for number in KNOWN_SM if assembles(nvcc, ptxas, Arch(number // 10, number % 10))]
    return f", ptxas {ptxas} adds sm_{' '.join(map(str, numbers))} without a suffix" if numbers else ""


def _is_made(nvcc: str, ptxas: Optional[str], arch: Arch) -> bool:
    return compiles(nvcc, arch) or (ptxas is not None and assembles(nvcc, ptxas, arch))


def assembles(nvcc: str, ptxas: str, arch: Arch) -> bool:
    """Whether a ``ptxas`` newer than ``nvcc`` makes SASS for ``arch`` from its newest PTX.

    Such PTX holds no instruction that needs a suffix.
    """
    newer = arch.number > compilable(nvcc)[-1] and not arch.suffix
    return newer and compiles(ptxas, arch)


def compiles(nvcc: str, arch: Arch) -> bool:
    """Whether a toolkit of this version makes SASS for an architecture."""
    first = _first_cuda(arch)
    return arch.number in compilable(nvcc) and first is not None and first <= _version(nvcc)[:2]


def _ways_out(subject: _Subject, lost: Sequence[Arch]) -> Iterator[str]:
    """The oldest nvcc that compiles for the whole set, if any, and the set without ``lost``."""
    fits = (nvcc for nvcc in _NVCCS if all(compiles(nvcc, arch) for arch in subject.sm))
    nvcc = next(fits, None)
    kept = [arch for arch in subject.sm if arch not in lost]
    if nvcc is not None:
        yield f"a base with nvcc {nvcc} (--base nvidia)"
    if kept:
        yield f"the set {_numbers(kept)}"


def _or_set(subject: _Subject, lost: Sequence[Arch]) -> str:
    kept = [arch for arch in subject.sm if arch not in lost]
    return f", or the set {_numbers(kept)}" if kept else ""


def _numbers(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, arches))


def _names(arches: Iterable[Arch]) -> str:
    return ", ".join(f"sm_{arch}" for arch in arches)


def _span(numbers: Sequence[int]) -> str:
    return f"sm_{numbers[0]} to sm_{numbers[-1]}" if numbers else "nothing we know"
