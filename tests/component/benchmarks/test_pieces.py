"""Tests of the benchmark of compiling in pieces: its sample, its sums, and what it calls different."""

from __future__ import annotations

import pytest

from benchmarks.pieces import differing, sample, table
from benchmarks.pieces_inside import worded
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
    lines = [line.split() for line in table(rows).splitlines()]
    alone = "legacy CUDA 1 objects 10.0 11.0 1.100 peak 1000 1100 cache 70 77"
    assert alone.split() in lines
    together = "together all 3 objects 24.0 17.0 0.708 peak 1000 1100 cache 70 77"
    assert together.split() in lines, "sums of seconds, the largest of the others"
    assert lines[-1] == ["0", "objects", "differ"]


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
    assert worded(LAUNCHED, "pieces") == LAUNCHED.removeprefix("/usr/local/bin/unit ")
    assert worded(LAUNCHED, "nvcc") == "/usr/bin/ccache /before/bin/nvcc -c one.cu -o one.cu.o"
    assert worded(CPP, "pieces") == CPP.removeprefix("/usr/local/bin/unit ")
    assert worded(CPP, "nvcc") == "/usr/bin/ccache g++ -c a.cc"
