"""Which tool makes which image. Source: CUDA's release notes: 12.4 has sm_50 to sm_90, 12.9 to sm_121."""

from __future__ import annotations

import pytest

from builder.gpu.architectures import Arch
from builder.onnxruntime.toolchain import divide

NEWER = "12.9.86"


def named(sm: str) -> tuple[Arch, ...]:
    return tuple(map(Arch.parse, sm.split()))


@pytest.mark.parametrize(
    ("sm", "compiled", "assembled", "ptx"),
    [
        ("50 52 60 61 70", "50 52 60 61 70", "", None),
        ("75 80 86", "75 80 86", "", None),
        ("89 90 100 120", "89 90", "100 120", "90"),
        ("100 103 120 121", "", "100 103 120 121", "90"),
        ("90a 120", "90a", "120", "90"),
        ("90 100a 120f", "90 100a 120f", "", None),  # a suffix's instructions are not in PTX for 90
        ("90 110", "90 110", "", None),  # sm_110 came with CUDA 13
    ],
)
def test_a_newer_ptxas_makes_what_nvcc_does_not_know(
    sm: str, compiled: str, assembled: str, ptx: str | None
) -> None:
    targets = divide(named(sm), "12.4", NEWER)
    assert (targets.compiled, targets.assembled) == (named(compiled), named(assembled))
    assert targets.ptx == (Arch.parse(ptx) if ptx else None)


@pytest.mark.parametrize(
    ("nvcc", "ptxas"), [("12.4", None), ("12.9", NEWER), ("12.8", None), ("13.0", NEWER)]
)
def test_otherwise_all_is_nvccs(nvcc: str, ptxas: str | None) -> None:
    targets = divide(named("89 90 100 120"), nvcc, ptxas)
    assert (targets.compiled, targets.assembled, targets.ptx) == (named("89 90 100 120"), (), None)


def test_ptx_is_of_the_newest_architecture_that_nvcc_knows() -> None:
    """12.8 ends at sm_120, without 121 and 103, which came with 12.9."""
    targets = divide(named("90 121"), "12.8", NEWER)
    assert (targets.compiled, targets.assembled, targets.ptx) == (named("90"), named("121"), Arch(12, 0))
