"""Tests of the advice on a failed compile, which follows from the tools' messages."""

from __future__ import annotations

import pytest

from builder.compile.stages import advice

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


def advised(log: str) -> str:
    found = advice(f"[12/550] Building CUDA object a.cu.o\n{log}\nortpacks: 1 of the units failed")
    assert found is not None
    return found


@pytest.mark.parametrize("log", KILLED)
def test_a_killed_compiler_ran_out_of_memory(log: str) -> None:
    assert "out of memory" in advised(log)
    assert "Nothing is wrong with the source" in advised(log)
    assert "with --jobs, and half as many as ran at a time" in advised(log)


@pytest.mark.parametrize("log", CRASHED)
def test_a_crashed_compiler_is_told_apart(log: str) -> None:
    assert advised(log).startswith("A compiler crashed.")
    assert "memory" not in advised(log)


def test_memory_is_the_cause_where_one_was_killed_and_another_crashed() -> None:
    assert "out of memory" in advised(f"{CRASHED[0]}\n{KILLED[0]}")


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (GNU, ("refuses the host compiler", "bases.<base>.packages")),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", ("variants.<name>.sm",)),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", ("variants.<name>.sm",)),
        (
            "ortpacks: bases.assembled.patches: fix.patch does not apply to ORT 1.21.0",
            ("Make the patch anew",),
        ),
    ],
)
def test_what_of_variants_yaml_to_change_is_named(log: str, told: tuple[str, ...]) -> None:
    assert all(part in advised(log) for part in told)


def test_a_reason_that_the_engine_did_not_keep_is_found_by_the_next_run() -> None:
    cut = "[output clipped, log limit 2MiB reached]"
    assert "Run the same command again" in advised(cut)
    assert "out of memory" in advised(f"Killed\n{cut}")


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
