"""Tests of plans whose rules were read from their very source, ``tests/support/ort_source.py``."""

from dataclasses import replace

import pytest

from builder.compile.estimate import unit_seconds
from builder.compile.explain import explain
from builder.compile.plan import _lost_units
from builder.config.build_plan import BuildPlan, compile_plan, planned_units
from builder.config.profiles import options_of
from builder.config.toolkits import check_version, toolkit_of
from builder.facts.gpu.architectures import Arch, architectures
from builder.facts.ort.source_rules import Range, SourceRules
from builder.farm.costs import Cost, cost_of
from builder.finding import Code, Severity
from builder.formats.package_names import Profile
from tests.support import ort_source
from tests.support.factories import packages
from tests.support.tables import table

CONTRIB = "onnxruntime/contrib_ops/cuda"


@pytest.fixture(scope="module")
def rules() -> SourceRules:
    return ort_source.rules()


def planned(rules: SourceRules, sm: str) -> BuildPlan:
    """Return a full plan on the assembled base, whose nvcc is 12.4."""
    plan = packages.plan(ort_version="1.40.0", profile=Profile.FULL, source_rules=rules)
    return replace(plan, variant=replace(plan.variant, sm=architectures(sm)))


def test_units_are_compiled_for_what_cmake_and_the_launches_say(rules: SourceRules) -> None:
    plan = compile_plan(planned(rules, "60,75,86"))
    for name, compiled in table("ort/made-up-units.txt"):
        assert " ".join(map(str, plan.part_of(f"x/{CONTRIB}/{name}.o").ptx)) == compiled
    assert " ".join(map(str, plan.part_of("x/onnxruntime/core/providers/cuda/plain.cu.o").ptx)) == "60 75 86"
    late = compile_plan(planned(rules, "60,90,120"))
    assert late.part_of(f"x/{CONTRIB}/big/one.cu.o").codes == ("sm_90a", "compute_90")
    assert late.part_of(f"x/{CONTRIB}/wgmma/three.cu.o").ptx == late.parts[-1].ptx
    assert "contrib_ops/cuda/big/" not in {part.path for part in plan.narrowed()}


def test_a_package_states_for_what_its_units_are_compiled(rules: SourceRules) -> None:
    """The check holds its containers to this: what its version asks for is not known."""
    made = planned_units(planned(rules, "60,75,90"))
    stated = [[one.name, " ".join(map(str, sorted(one.sass))), str(one.units or "")] for one in made]
    assert stated == table("ort/made-up-groups.txt")


def test_nothing_is_assembled_for_units_of_one_accelerated_architecture(rules: SourceRules) -> None:
    (wgmma,) = (group for group in rules.groups if group.name == "wgmma")
    alone = replace(wgmma, ranges=(Range(90, 999, wgmma.ranges[0].target, "90a-real"),))
    others = tuple(group for group in rules.groups if group != wgmma)
    plan = compile_plan(planned(replace(rules, groups=(*others, alone)), "60,90,120"))
    assert [*map(str, plan.part_of(f"x/{CONTRIB}/wgmma/three.cu.o").ptx)] == ["90"]


def test_only_options_that_the_source_has_are_set(rules: SourceRules) -> None:
    plan = planned(rules, "75")
    values = {option.name: option.value for option in options_of(plan, compile_plan(plan))}
    assert {"onnxruntime_NVCC_THREADS", "onnxruntime_USE_LEAN_ATTENTION"} <= values.keys()
    assert "onnxruntime_USE_FPA_INTB_GEMM" not in values
    assert values["onnxruntime_WITH_FP2"] == "OFF"


def test_a_compiler_that_is_too_old_is_refused_with_the_line(rules: SourceRules) -> None:
    subject = replace(toolkit_of(planned(rules, "75")), cuda="12.4")
    cuda, gcc = check_version(subject)
    assert (cuda.code, cuda.wanted) == (Code.C009, "cuda.version 12.5 or newer")
    assert "(cmake/external/cuda_setup.cmake:4)" in cuda.message
    assert (gcc.code, gcc.wanted, gcc.got) == (Code.C009, "a base with gcc 13.2 or newer", "gcc 12")
    assert next(check_version(replace(subject, cuda="12.9"))).wanted == "a base with CUDA 12.5 or newer"
    assert not list(check_version(replace(subject, cuda="12.5", nvcc="12.6", tools={"gcc": "13"})))


def test_units_that_other_code_needs_are_missed_with_the_line(rules: SourceRules) -> None:
    (finding,) = _lost_units(planned(rules, "60"))
    assert (finding.code, finding.severity) == (Code.C015, Severity.WARNING)
    assert "no unit of big (2) for this set (cmake/cuda_provider.cmake:42)" in finding.message
    assert "sm_75" in finding.wanted
    assert not list(_lost_units(planned(rules, "60,75")))


def test_time_is_estimated_for_the_units_of_the_source(rules: SourceRules) -> None:
    provider = f"CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/{CONTRIB}"
    known = {
        f"{provider}/big/other.cu.o": Cost(cpu=50, architectures=1, peak=9),
        f"{provider}/far/one.cu.o": Cost(cpu=70, architectures=1, peak=8),
    }
    seconds = unit_seconds(planned(rules, "75"), known)
    assert len(seconds) == len([*rules.paths]) - 2  # fast attention
    assert {seconds[f"{provider}/big/{name}.cu.o"] for name in ("one", "two")} == {50}
    assert seconds[f"{provider}/moe/experts_a.cu.o"] == cost_of({}, ".cu.o").seconds(".cu.o", 1)
    assert f"{provider}/big/one.cu.o" not in unit_seconds(planned(rules, "60"), known)


def test_kernels_that_are_empty_for_the_set_take_less(rules: SourceRules) -> None:
    """Measured: 13 to 33 CPU s for units of flash attention that take 40 to 230 for a GPU that has it."""
    (fast,) = (launch for launch in rules.launches if launch.name == "fast attention")
    always = replace(rules, launches=(replace(fast, option="", ptx=Arch(8, 0)),))
    unit = f"CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/{CONTRIB}/fast_attention/fast_32.cu.o"
    known = {unit: Cost(cpu=90, architectures=1, peak=9)}
    assert unit_seconds(planned(always, "86"), known)[unit] == 90
    assert 13 <= unit_seconds(planned(always, "75"), known)[unit] <= 33


def test_each_rule_is_explained_with_its_line(rules: SourceRules) -> None:
    notes = "\n".join(explain(planned(rules, "60,90")).notes)
    assert "sm_90 becomes sm_90a, which runs on 9.0 (cmake/external/cuda_setup.cmake:25)" in notes
    assert "fast attention, 2 units: compiled for 90a alone (cmake/cuda_provider.cmake:36)" in notes
    assert "wgmma" not in notes
    assert "CUDA 12.5, gcc 13.2, CMake 3.30, C++ 23 or newer" in notes
    gone = "big, 2 units: in no target for this set (cmake/cuda_provider.cmake:42)"
    assert gone in "\n".join(explain(planned(rules, "60")).notes)
