"""Tests of the benchmark of compiling in pieces: its sample, its sums, and what it calls different."""

from __future__ import annotations

import pytest

from benchmarks.pieces import IN_ALL, differing, sample, table
from benchmarks.pieces_inside import chosen, worded
from builder.inside import costs
from tests.support import ROOT

HOLDS = {"symbols": {"T": 2}, "kernels": {".sm_80": [1, "0123456789abcdef"]}}

LAUNCHED = "/usr/local/bin/unit /usr/bin/ccache /usr/local/cuda/bin/nvcc -c one.cu -o one.cu.o"

CPP = (
    "/usr/local/bin/unit env --unset=CCACHE_DEPEND CCACHE_COMPILERCHECK=string:x /usr/bin/ccache g++ -c a.cc"
)


def row(variant: str, unit: str, way: str, cpu: float, holds: object = HOLDS) -> dict[str, object]:
    measured = {"cpu": cpu, "peak": 100 * cpu, "cache": 7 * cpu, "holds": holds}
    return {"round": 1, "variant": variant, "unit": unit, "way": way, **measured}


def test_the_sample_is_drawn_by_quantile_of_cost_without_repetition() -> None:
    units = sample(40, 60)
    assert len(set(units)) == len(units) == 100
    assert [unit.endswith(".cu.o") for unit in units] == [True] * 40 + [False] * 60
    known = costs.read(ROOT / "builder/inside/costs.tsv")
    cuda = [known[unit].seconds(unit, 3) for unit in units[:40]]
    assert cuda == sorted(cuda, reverse=True)
    assert len(set(sample(100, 100))) == 200
    (one,) = sample(1, 0)
    every = sorted(cost.seconds(unit, 3) for unit, cost in known.items() if unit.endswith(".cu.o"))
    assert known[one].seconds(one, 3) == pytest.approx(every[len(every) // 2], rel=0.05), "about the median"


def test_the_table_has_sums_and_their_ratio() -> None:
    rows = [
        row("legacy", "a.cu.o", "nvcc", 10),
        row("legacy", "a.cu.o", "pieces", 11),
        row("modern", "a.cu.o", "nvcc", 10),
        row("modern", "a.cu.o", "pieces", 5),
        row("modern", "b.cc.o", "nvcc", 4),
        row("modern", "b.cc.o", "pieces", 1),
    ]
    failed = row("modern", "b.cc.o", "nvprune", 2, {"failed": "no device code"})
    lines = [" ".join(line.split()) for line in table([*rows, failed]).splitlines()]
    assert "legacy CUDA pieces 1 objects 11.0 CPU s 1.100 peak 1100 cache 77" in lines
    assert "together all nvcc 3 objects 24.0 CPU s 1.000 peak 1000 cache 70" in lines
    sums = "together all pieces 3 objects 17.0 CPU s 0.708 peak 1100 cache 77"
    assert sums in lines, "sums of seconds, the largest of the others"
    assert "modern C++ nvprune 1 objects 2.0 CPU s 0.500 peak 200 cache 14" in lines
    assert lines[-1] == "0 objects differ, 1 were not made"


def test_an_object_with_other_kernels_or_symbols_differs() -> None:
    others = [
        {**HOLDS, "symbols": {"T": 3}},
        {**HOLDS, "kernels": {}},
        {**HOLDS, "kernels": {".sm_80": [1, "fedcba9876543210"]}},
    ]
    for other in others:
        assert (
            differing([row("legacy", "a.cu.o", "nvcc", 1), row("legacy", "a.cu.o", "pieces", 1, other)]) == 1
        )


def test_the_way_of_before_has_one_call_of_nvcc_and_ccache_by_its_own_mode() -> None:
    assert " ".join(worded(LAUNCHED, "pieces")) == LAUNCHED.removeprefix("/usr/local/bin/unit ")
    assert " ".join(worded(LAUNCHED, "nvcc")) == "/usr/bin/ccache /before/bin/nvcc -c one.cu -o one.cu.o"
    assert " ".join(worded(LAUNCHED, "sccache")) == "/sccache /before/bin/nvcc -c one.cu -o one.cu.o"
    assert " ".join(worded(CPP, "pieces")) == CPP.removeprefix("/usr/local/bin/unit ")
    assert " ".join(worded(CPP, "nvcc")) == "/usr/bin/ccache g++ -c a.cc"


def test_a_variant_s_architectures_are_chosen_from_all() -> None:
    of_a_set = '"--generate-code=arch=compute_89,code=[sm_89]" -Xfatbin=--assemble=100:120'
    command = LAUNCHED.replace(" -c", f" {of_a_set} -c")
    assert chosen(command) == ["89", "100", "120"]
    words = worded(command, "union")
    assert words[:2] == ["/usr/bin/ccache", "/before/bin/nvcc"]
    assert words == worded(LAUNCHED.replace(" -c", " -Xfatbin=--assemble=1 -c"), "nvprune"), "of no variant"
    assert [word for word in words if "sm_" in word and "75" in word]


def test_units_that_a_variant_has_in_part_are_left_out() -> None:
    units = sample(30, 0, IN_ALL)
    assert len(units) == 30
    assert not [unit for unit in units if "attention/flash" in unit or "/moe/" in unit or "fmha" in unit]
