"""Differences between ONNX Runtime's releases, as rules with their releases and their source.

Packages are compiled for 1.21 to 1.23; the rules for builds are known for these releases only. For later
releases, only rules for reading official packages are known: how units are compiled, and which libraries are
opened at run time. Sources: the whole source of 1.21.0; of later releases the files named here, at the
commits named here; the official wheels 1.21.0, 1.23.2 and 1.31.1. The release of a pull request was derived
from its date and the release's branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import version_of
from builder.facts.gpu.table import Version

_FIRST_LINE, _LAST_LINE = (1, 21), (1, 23)

CMAKE_READ = "3.31.6"
"""The newest CMake whose ``Modules/Internal/CMakeCUDAArchitecturesValidate.cmake`` was read."""


@dataclass(frozen=True)
class ReleaseRange:
    """A range of releases with both ends included; ``None`` is an open end.

    A last release of two numbers includes all patch releases of its line: ``(1, 24)`` includes 1.24.4.
    """

    first: Version | None = None
    last: Version | None = None

    def __contains__(self, version: str) -> bool:
        numbers = version_of(version)
        above = self.first is None or numbers >= self.first
        return above and (self.last is None or numbers[: len(self.last)] <= self.last)


ALWAYS = ReleaseRange()


@dataclass(frozen=True)
class Rule:
    """A statement on ONNX Runtime that is true for a range of releases."""

    what: str
    """The statement, as a sentence without its full stop."""
    span: ReleaseRange
    source: str

    def holds(self, version: str) -> bool:
        """Return whether the statement is true for this ORT version."""
        return version in self.span


REWRITES_ARCHES = Rule(
    "ORT's own CMake rewrites CMAKE_CUDA_ARCHITECTURES: every entry becomes SASS only, 90, 100, 101 and 120 "
    "get the suffix a, and of the entries with -virtual the last alone stays",
    ReleaseRange(first=(1, 23)),
    "cmake/external/cuda_configuration.cmake at c849eb1 and 096d680; pull request 25126 of June 2025; the "
    "wheels: 1.21.0 has sm_90, 1.23.2 and 1.31.1 have sm_90a",
)

REFUSES_FAMILIES = Rule(
    "ORT's own CMake stops at an architecture with the suffix f: Unrecognized CUDA architecture",
    ReleaseRange(first=(1, 23), last=(1, 24)),
    "cmake/external/cuda_configuration.cmake at 096d680",
)

HALF_IN_CONTRIB = Rule(
    "below sm_53 the half-precision kernels of some contrib operators are empty, those of "
    "DecoderMaskedMultiHeadAttention and MoE among them",
    ALWAYS,
    "1.21.0's decoder_masked_multihead_attention_impl.cu line 52 and moe_kernel.cu line 108; other kernels "
    "compute in float there (cu_inc/common.cuh line 22); pull request 24582 of 1.22.0",
)

SPLITS_UNITS = Rule(
    "some CUDA units are compiled for part of the list: flash attention from sm_80 on, LLM from sm_75 on, "
    "TMA kernels for sm_90a alone and for sm_120 on",
    ReleaseRange(first=(1, 27)),
    "pull request 28645 of May 2026; cmake/onnxruntime_cuda_source_filters.cmake at 09e18a5; that file is in "
    "1.27.1 (README of seitzbg/onnxruntime-gpu-sm121-aarch64); in the wheel 1.31.1 392 of 609 containers",
)

LLM_WITHOUT_120 = Rule(
    "the LLM units are compiled for nothing from sm_120 on",
    ReleaseRange(first=(1, 27), last=(1, 27, 1)),
    "pull request 29824 of July 2026; README of seitzbg/onnxruntime-gpu-sm121-aarch64; the file that leaves "
    "them out came with 1.27",
)

OPENS_LIBRARIES = Rule(
    "the CUDA provider opens cuDNN, cuFFT and NVRTC at run time: NEEDED names none of them, and of their "
    "names its bytes hold NVRTC's alone",
    ReleaseRange(first=(1, 28)),
    "pull requests 29252, 29808 and 29705; readelf and strings of the wheels 1.21.0, 1.23.2 and 1.31.1",
)


@dataclass(frozen=True)
class OldestTools:
    """The oldest tools that can compile a range of releases."""

    span: ReleaseRange
    cuda: str
    gcc: str
    cmake: str
    source: str


_OLDEST_TOOLS = (
    OldestTools(
        ReleaseRange(last=(1, 21)), "11.4", "9", "3.28", "1.21.0's cmake/CMakeLists.txt lines 6, 58 and 863"
    ),
    OldestTools(
        ReleaseRange(first=(1, 22)),
        *("11.4", "11.1", "3.28"),
        "pull request 24148 of March 2025; cuda_configuration.cmake at 096d680 (c849eb1, older, has 11.8)",
    ),
)


def known_line(version: str) -> str:
    """Return the nearest release line whose rules are known: ``1.23`` for 1.23.2 and for 1.40.0."""
    line = min(max(version_of(version)[:2], _FIRST_LINE), _LAST_LINE)
    return f"{line[0]}.{line[1]}"


def is_known(version: str) -> bool:
    """Return whether the rules for builds of this version's release line are known."""
    return _FIRST_LINE <= version_of(version)[:2] <= _LAST_LINE


def needs(version: str) -> OldestTools:
    """Return the oldest CUDA, gcc and CMake that can compile a version."""
    return next(tools for tools in _OLDEST_TOOLS if version in tools.span)


_OPENED = {
    "12": ("libcudnn.so.9", "libcufft.so.11", "libnvrtc.so.12"),
    "13": ("libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"),
}
"""The libraries that a provider opens at run time, by CUDA's major version."""


def opened_at_run_time(version: str, cuda: str = "12") -> tuple[str, ...]:
    """Return the libraries that a full provider of this version opens at run time instead of by NEEDED.

    ``cuda``: ``12`` or ``13``; for another version the result is empty.
    """
    return _OPENED.get(cuda, ()) if OPENS_LIBRARIES.holds(version) else ()


def sm_names(arches: Iterable[Arch]) -> str:
    """Return architectures as text: ``sm_103, sm_121``."""
    return ", ".join(f"sm_{arch}" for arch in arches)
