"""Rules of ORT's CMake for a list of architectures, by ORT's version: it refuses some and rewrites others.

Before 1.23, ORT leaves CMAKE_CUDA_ARCHITECTURES as it is: ``90`` is SASS and PTX, ``90-real`` SASS,
``90-virtual`` PTX (CMake's documentation of CUDA_ARCHITECTURES). From 1.23 on, ORT's CMake files rewrite the
list first (``versions.REWRITES_ARCHES``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.gpu.architectures import Arch
from builder.onnxruntime.versions import REFUSES_FAMILIES, REWRITES_ARCHES

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")

_ACCELERATED = frozenset({90, 100, 101, 120})
"""The list ``ARCHITECTURES_WITH_ACCEL`` of ORT's ``cuda_configuration.cmake``."""


@dataclass(frozen=True)
class Compiled:
    """The architectures of the SASS and the PTX in each unit that is compiled for the whole list."""

    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


def cmake_list(sm: Sequence[Arch]) -> str:
    """Return the value of CMAKE_CUDA_ARCHITECTURES for SASS of ``sm`` and no PTX."""
    return ";".join(f"{arch}-real" for arch in sm)


def compiled(sm: Sequence[Arch], version: str) -> Compiled:
    """Return the architectures of a provider of ORT ``version`` that is compiled for the set ``sm``.

    Raises ``ValueError`` where ORT's CMake refuses an architecture (``refused`` names them).
    """
    return read_list(cmake_list(sm), version)


def read_list(text: str, version: str) -> Compiled:
    """Return the architectures that ORT ``version`` compiles for with this CMAKE_CUDA_ARCHITECTURES.

    Raises ``ValueError`` for an entry that is no architecture, or that ORT's CMake refuses.
    """
    entries = [_entry(word) for word in text.split(";") if word]
    sass = {arch for arch, kind in entries if kind != "virtual"}
    if not REWRITES_ARCHES.holds(version):
        ptx = {arch for arch, kind in entries if kind != "real"}
        return Compiled(tuple(sorted(sass)), tuple(sorted(ptx)))
    stopped = refused((arch for arch, _ in entries), version)
    if stopped:
        raise ValueError(f"Unrecognized CUDA architecture: {stopped[0]}")
    virtual = [arch for arch, kind in entries if kind == "virtual"]
    return Compiled(tuple(sorted(set(map(_accelerated, sass)))), tuple(virtual[-1:]))


def refused(sm: Iterable[Arch], version: str) -> tuple[Arch, ...]:
    """Return the architectures of ``sm`` that the CMake files of ORT ``version`` refuse."""
    return tuple(arch for arch in sm if arch.suffix == "f") if REFUSES_FAMILIES.holds(version) else ()


def rewritten(sm: Sequence[Arch], version: str) -> tuple[tuple[Arch, Arch], ...]:
    """Return each architecture of ``sm`` that ORT ``version`` rewrites, with its replacement."""
    if not REWRITES_ARCHES.holds(version):
        return ()
    pairs = ((arch, _accelerated(arch)) for arch in sm if arch.suffix != "f")
    return tuple((arch, becomes) for arch, becomes in pairs if arch != becomes)


def _entry(word: str) -> tuple[Arch, str]:
    """Return an architecture and ``real``, ``virtual`` or ``""``, which means both.

    Raises ``ValueError`` for a word that is no entry.
    """
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return Arch.parse(match["arch"]), match["kind"] or ""


def _accelerated(arch: Arch) -> Arch:
    """Return the architecture by which ORT replaces ``arch``.

    ORT drops the suffix, then adds ``a`` to the architectures that it has accelerated kernels for: 103a
    becomes 103, 90 becomes 90a.
    """
    return Arch(arch.major, arch.minor, "a" if arch.number in _ACCELERATED else "")
