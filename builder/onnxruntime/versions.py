"""What changes from one ONNX Runtime release to the next, as data: each rule with its range and its source.

The one place that compares ORT versions. Sources are files and pull requests of microsoft/onnxruntime.
1.21.0's source was read whole; of later releases the files named here, at the commits named here, and the
official wheels 1.21.0, 1.23.2 and 1.31.1. Pull requests are placed in a release by their date and by the
release's branch; where only that stands behind a number, the rule says "by date".
"""

from __future__ import annotations

from dataclasses import dataclass

from builder.formats.versions import Span, parse

_FIRST_LINE, _LAST_LINE = (1, 21), (1, 31)


@dataclass(frozen=True)
class Rule:
    """One thing that holds for some releases and not for others."""

    what: str
    """A sentence without its full stop."""
    span: Span
    source: str

    def holds(self, version: str) -> bool:
        """Whether it holds for this ORT version."""
        return version in self.span


REWRITES_ARCHES = Rule(
    "ORT's own CMake rewrites CMAKE_CUDA_ARCHITECTURES: every entry becomes SASS only, 90, 100, 101 and 120 "
    "get the suffix a, and of the entries with -virtual the last alone stays",
    Span(first=(1, 23)),
    "cmake/external/cuda_configuration.cmake at c849eb1 and 096d680; pull request 25126 of June 2025; the "
    "wheels: 1.21.0 has sm_90, 1.23.2 and 1.31.1 have sm_90a",
)

REFUSES_FAMILIES = Rule(
    "ORT's own CMake stops at an architecture with the suffix f: Unrecognized CUDA architecture",
    Span(first=(1, 23), last=(1, 24)),
    "cmake/external/cuda_configuration.cmake at 096d680",
)

TAKES_FAMILIES = Rule(
    "ORT's own CMake keeps an architecture with the suffix f if it stands without -real, and reads 120f-real "
    "as 120",
    Span(first=(1, 25)),
    "pull request 27278 of February 2026, by date; cuda_configuration.cmake at 23508ad of tianleiwu's fork",
)

ACCELERATES_110 = Rule(
    "ORT's own CMake gives 110 the suffix a too",
    Span(first=(1, 25)),
    "pull request 27278 of February 2026, by date",
)

SPLITS_UNITS = Rule(
    "some CUDA units are compiled for part of the list: flash attention from sm_80 on, LLM from sm_75 on, "
    "TMA kernels for sm_90a alone and for sm_120 on",
    Span(first=(1, 27)),
    "pull request 28645 of May 2026; cmake/onnxruntime_cuda_source_filters.cmake at 09e18a5; that file is in "
    "1.27.1 (README of seitzbg/onnxruntime-gpu-sm121-aarch64); in the wheel 1.31.1 392 of 609 containers",
)

BLACKWELL_ALONE_BREAKS = Rule(
    "with contrib operators a list of sm_120 and newer alone leaves the LLM units out, and the CUDA provider "
    "does not load",
    Span(first=(1, 27), last=(1, 27, 1)),
    "pull request 29824 of July 2026; README of seitzbg/onnxruntime-gpu-sm121-aarch64; the file that leaves "
    "them out came with 1.27; issue 26177: 1.24.2 compiled for 120 runs; issue 26181 recommends it",
)

OLD_ALONE_BREAKS = Rule(
    "with contrib operators a list that ends below sm_75 leaves the LLM units out, and what calls them stays",
    Span(first=(1, 27)),
    "cmake/onnxruntime_providers_cuda.cmake at 00a7441: the LLM object library is made only for a list that "
    "is not empty, and nothing stands in for it. Read, not tried",
)

OPENS_LIBRARIES = Rule(
    "the CUDA provider opens cuDNN, cuFFT and NVRTC at run time: NEEDED names none of them, and of their "
    "names its bytes hold NVRTC's alone",
    Span(first=(1, 28)),
    "pull requests 29252, 29808 and 29705; readelf and strings of the wheels 1.21.0, 1.23.2 and 1.31.1",
)

TELEMETRY = Rule(
    "official Linux builds send telemetry unless ORT_DISABLE_TELEMETRY=1 is set; build.py turns it off with "
    "--no_telemetry, CMake with onnxruntime_USE_TELEMETRY=OFF, its default",
    Span(first=(1, 29)),
    "pull requests 27379 and 29911; the recipe of conda-forge's onnxruntime-feedstock",
)

HALF_IN_CONTRIB = Rule(
    "below sm_53 the half-precision kernels of some contrib operators are empty, those of "
    "DecoderMaskedMultiHeadAttention and MoE among them",
    Span(last=(1, 27)),
    "1.21.0's decoder_masked_multihead_attention_impl.cu line 52 and moe_kernel.cu line 108; other kernels "
    "compute in float there (cu_inc/common.cuh line 22); pull request 24582 of 1.22.0",
)

HALF_EMPTY = Rule(
    "below sm_53 half-precision kernels are empty and give zeros",
    Span(first=(1, 28)),
    "pull request 29580 of July 2026, by date",
)

RULES: tuple[Rule, ...] = (
    REWRITES_ARCHES,
    REFUSES_FAMILIES,
    TAKES_FAMILIES,
    ACCELERATES_110,
    SPLITS_UNITS,
    BLACKWELL_ALONE_BREAKS,
    OLD_ALONE_BREAKS,
    OPENS_LIBRARIES,
    TELEMETRY,
    HALF_IN_CONTRIB,
    HALF_EMPTY,
)
"""All of them; docs/profiles.md tells them in this order."""


@dataclass(frozen=True)
class Needs:
    """The oldest tools a release is compiled with."""

    span: Span
    cuda: str
    gcc: str
    cmake: str
    source: str


_NEEDS = (
    Needs(Span(last=(1, 21)), "11.4", "9", "3.28", "1.21.0's cmake/CMakeLists.txt lines 6, 58 and 863"),
    Needs(
        Span(first=(1, 22), last=(1, 24)),
        *("11.4", "11.1", "3.28"),
        "pull request 24148 of March 2025; cuda_configuration.cmake at 096d680 (c849eb1, older, has 11.8)",
    ),
    Needs(
        Span(first=(1, 25)),
        *("12.0", "11.1", "3.28"),
        "cuda_configuration.cmake at 23508ad of tianleiwu's fork, by date",
    ),
)


def known_line(version: str) -> str:
    """The release line whose rules are known and that is nearest: ``1.23`` of 1.23.2, ``1.31`` of 1.40.0."""
    line = min(max(parse(version)[:2], _FIRST_LINE), _LAST_LINE)
    return f"{line[0]}.{line[1]}"


def is_known(version: str) -> bool:
    """Whether the rules were looked up for this version's line."""
    return _FIRST_LINE <= parse(version)[:2] <= _LAST_LINE


def needs(version: str) -> Needs:
    """The oldest CUDA, gcc and CMake that a version is compiled with."""
    return next(entry for entry in _NEEDS if version in entry.span)


_OPENED = ("libcudnn.so.9", "libcufft.so.11", "libnvrtc.so.12")
"""Of a CUDA 12 provider."""


def opened_at_run_time(version: str) -> tuple[str, ...]:
    """What a full CUDA 12 provider of this version opens instead of naming it in NEEDED."""
    return _OPENED if OPENS_LIBRARIES.holds(version) else ()
