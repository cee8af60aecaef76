"""Tests of the advice on a failed compile, which follows from the tools' messages."""

from __future__ import annotations

import pytest

from builder.compile.stages import advice
from tests.support.messages import Told

KILLED = [
    "Killed",
    "g++-12: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    "cc1plus: out of memory allocating 65536 bytes after a total of 2145058816 bytes",
    "virtual memory exhausted: Cannot allocate memory",
]
"""Messages of nvcc 12.4's shell when cicc or ptxas is killed, g++ 12 under nvcc, nvcc without a
shell, cc1plus."""

CRASHED = [
    "Segmentation fault",
    "Segmentation fault (core dumped)",
    "Aborted",
    "g++-12: internal compiler error: Segmentation fault signal terminated program cc1plus",
    "pool.cc:12:1: internal compiler error: in convert_move, at expr.cc:223",
    "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)",
    "nvcc error   : 'cudafe++' died due to signal 6",
]
"""Messages of the same programs after a crash."""

GNU = (
    "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions "
    "later than 13 are not supported! The nvcc flag '-allow-unsupported-compiler' can be used to override "
    "this version check; however, using an unsupported host compiler may cause compilation failure or "
    "incorrect run time execution. Use at your own risk."
)
"""Message of ``crt/host_config.h`` in CUDA 12.4."""


CLIPPED = "[output clipped, log limit 2MiB reached]"


@pytest.mark.parametrize(
    "log",
    [
        *KILLED,
        *CRASHED,
        f"{CRASHED[0]}\n{KILLED[0]}",
        GNU,
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
        "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
        "ortpacks: bases.assembled.patches: fix.patch does not apply to ORT 1.21.0",
        CLIPPED,
        f"Killed\n{CLIPPED}",
    ],
)
def test_the_advice_follows_from_the_message(told: Told, log: str) -> None:
    told(advice(f"[12/550] Building CUDA object a.cu.o\n{log}\nortpacks: 1 of the units failed"))


@pytest.mark.parametrize(
    "log",
    [
        "",
        'a.cu(3): error: expected a ";"',
        "undefined reference to `pool'",
        "pool.cc:4:2: error: 'signal' was not declared in this scope",
        "pool.cc:4:2: error: 'Killed' was not declared in this scope",
        "pool.cc:4:2: warning: Segmentation fault ahead",
        "ninja: build stopped: interrupted by user.",
    ],
)
def test_a_plain_error_speaks_for_itself(log: str) -> None:
    assert advice(log) is None
