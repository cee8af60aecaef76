"""Lists of architectures: what is asked for, what CMake is told, and what the compiled provider then holds.

Before 1.23 ORT hands CMAKE_CUDA_ARCHITECTURES to CMake as it is: ``90`` is SASS and PTX, ``90-real`` SASS,
``90-virtual`` PTX (CMake's documentation of CUDA_ARCHITECTURES). From 1.23 on its own CMake rewrites the list
first (``ortversions.REWRITES_ARCHES``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import FrozenSet, Iterable, Iterator, List, Sequence, Tuple

from builder.core.arch import Arch
from builder.core.ortversions import ACCELERATES_110, REFUSES_FAMILIES, REWRITES_ARCHES, TAKES_FAMILIES

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")


@dataclass(frozen=True)
class Compiled:
    """What each unit that is compiled for the whole list holds."""

    sass: Tuple[Arch, ...]
    ptx: Tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


@dataclass(frozen=True)
class _Entry:
    arch: Arch
    kind: str
    """``real``, ``virtual`` or ``""``, which CMake takes as both."""


def cmake_list(sm: Sequence[Arch], version: str) -> str:
    """The value of CMAKE_CUDA_ARCHITECTURES that asks ORT ``version`` for SASS of ``sm`` and nothing else.

    Where ORT's CMake takes families, it knows them without ``-real`` only; PTX of the family comes along.
    """
    return ";".join(_spelled(arch, version) for arch in sm)


def compiled(sm: Sequence[Arch], version: str) -> Compiled:
    """What the provider of ORT ``version`` will hold when ``sm`` is asked for.

    Raises ``ValueError`` where ORT's CMake refuses an architecture (``refused`` names them).
    """
    return read_list(cmake_list(sm, version), version)


def read_list(text: str, version: str) -> Compiled:
    """What a value of CMAKE_CUDA_ARCHITECTURES comes to with ORT ``version``; ``ValueError`` if refused."""
    entries = [_entry(word) for word in text.split(";") if word]
    if not REWRITES_ARCHES.holds(version):
        return _as_cmake_does(entries)
    lost = [entry.arch for entry in entries if entry.arch.suffix == "f"] if _refuses(version) else []
    if lost:
        raise ValueError(f"Unrecognized CUDA architecture: {lost[0]}")
    return _as_ort_does(entries, version)


def refused(sm: Iterable[Arch], version: str) -> Tuple[Arch, ...]:
    """The architectures at which ORT's own CMake stops."""
    return tuple(arch for arch in sm if arch.suffix == "f") if _refuses(version) else ()


def rewritten(sm: Sequence[Arch], version: str) -> Tuple[Tuple[Arch, Arch], ...]:
    """Each architecture of ``sm`` that ORT makes another one of, and that other one."""
    if not REWRITES_ARCHES.holds(version):
        return ()
    pairs = ((arch, _accelerated(arch, version)) for arch in sm if arch.suffix != "f")
    return tuple((asked, made) for asked, made in pairs if asked != made)


def _spelled(arch: Arch, version: str) -> str:
    return str(arch) if arch.suffix == "f" and TAKES_FAMILIES.holds(version) else f"{arch}-real"


def _refuses(version: str) -> bool:
    return REFUSES_FAMILIES.holds(version)


def _entry(word: str) -> _Entry:
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return _Entry(Arch.parse(match["arch"]), match["kind"] or "")


def _as_cmake_does(entries: Sequence[_Entry]) -> Compiled:
    sass = {entry.arch for entry in entries if entry.kind != "virtual"}
    ptx = {entry.arch for entry in entries if entry.kind != "real"}
    return Compiled(tuple(sorted(sass)), tuple(sorted(ptx)))


def _as_ort_does(entries: Sequence[_Entry], version: str) -> Compiled:
    families = [entry.arch for entry in entries if entry.arch.suffix == "f" and not entry.kind]
    virtual = [entry.arch for entry in entries if entry.kind == "virtual"]
    sass = {_accelerated(arch, version) for arch in _real(entries)}
    return Compiled(tuple(sorted({*sass, *families})), tuple(sorted({*families, *virtual[-1:]})))


def _real(entries: Sequence[_Entry]) -> Iterator[Arch]:
    """What ORT takes for SASS of a single architecture: ``120f-real`` is 120 to it."""
    for entry in entries:
        if entry.kind == "real" or (not entry.kind and entry.arch.suffix != "f"):
            yield entry.arch


def _accelerated(arch: Arch, version: str) -> Arch:
    """ORT drops the suffix it was given, then adds ``a`` where it has kernels for it: 103a becomes 103."""
    return Arch(arch.major, arch.minor, "a" if arch.number in _with_suffix(version) else "")


def _with_suffix(version: str) -> FrozenSet[int]:
    """The list ``ARCHITECTURES_WITH_ACCEL`` of ``cuda_configuration.cmake``."""
    more: List[int] = [110] if ACCELERATES_110.holds(version) else []
    return frozenset({90, 100, 101, 120, *more})
