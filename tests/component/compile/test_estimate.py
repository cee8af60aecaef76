"""Tests of the estimate of a plan's compile time. Sums are computed by hand from a small table of costs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from builder.compile.estimate import compile_work, estimate_lines, unit_seconds
from builder.config.build_plan import NO_BASE, BuildPlan, widened
from builder.config.variants import Variant
from builder.facts.gpu.architectures import Arch
from builder.farm import costs
from builder.farm.costs import Cost
from builder.formats.package_names import Host, PackageForm, Profile
from tests.support import ROOT
from tests.support.factories import packages
from tests.support.tables import table

_CUDA = "CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/onnxruntime"

TABLE = costs.read(ROOT / "tests/data/compile/costs.tsv")

SHIPPED = costs.read(ROOT / "builder/farm/costs.tsv")

HOST_UNIT = "CMakeFiles/onnxruntime_optimizer.dir/src/gelu_fusion.cc.o"

LEAN = 2600 + 26 + 400 + 50 + 7 + 3 + 1 + 100

MINIMAL = 26 + 50 + 3 + 1 + 100


def planned(profile: Profile = Profile.LEAN, **changes: object) -> BuildPlan:
    """Return a plan for five architectures, as many as the table's CUDA units were measured with."""
    return packages.plan(profile=profile, **changes)


def latest(base: str, version: str, *, widen: bool, profile: Profile = Profile.LEAN) -> BuildPlan:
    sm = tuple(map(Arch.parse, ("89", "90", "100", "120")))
    variant = Variant(name="latest", sm=sm, generations=(), widen=widen)
    return planned(profile, variant=variant, base=base, ort_version=version)


SETS = {
    "full": planned(Profile.FULL),
    "latest": latest("assembled", "1.21.0", widen=False, profile=Profile.FULL),
}


@pytest.mark.parametrize(
    ("profile", "seconds"), [(Profile.LEAN, LEAN), (Profile.FULL, LEAN + 5200), (Profile.MINIMAL, MINIMAL)]
)
def test_a_profile_takes_what_its_own_units_take(profile: Profile, seconds: float) -> None:
    """``minimal`` has the provider's own folder, ``tunable`` without integer_gemm.cc, and one CUDA unit."""
    assert compile_work(planned(profile), TABLE).total == pytest.approx(seconds)


def test_a_plugin_takes_more_than_a_provider_for_each_cpp_unit() -> None:
    provider = planned(Profile.FULL, host=None)
    plugin = replace(provider, variant=replace(provider.variant, form=PackageForm.PLUGIN))
    more = compile_work(plugin, TABLE).total - compile_work(provider, TABLE).total
    assert more == pytest.approx(4 * 27), "conv, cuda_call, integer_gemm and util"


@pytest.mark.parametrize("row", table("compile/unit-costs.txt"), ids=" ".join)
def test_a_unit_takes_what_its_own_architectures_take(row: list[str]) -> None:
    """PTX that architectures share is counted once."""
    plan, unit, cpu, architectures, seconds = row
    cost = Cost(cpu=float(cpu), architectures=float(architectures), peak=9)
    work = compile_work(SETS[plan], {f"{_CUDA}/contrib_ops/cuda/bert/{unit}.o": cost})
    assert work.total == pytest.approx(float(seconds), abs=0.01)


def test_units_that_are_left_out_take_nothing() -> None:
    flash = f"{_CUDA}/contrib_ops/cuda/bert/flash_attention/flash_fwd_hdim64_fp16_sm80.cu.o"
    assert unit_seconds(planned(Profile.FULL), {flash: Cost(cpu=106, architectures=1, peak=9)}) == {}


def test_the_host_library_counts_where_it_is_compiled() -> None:
    table = {**TABLE, HOST_UNIT: Cost(cpu=30, architectures=4, peak=9)}
    assert compile_work(planned(), table).total == pytest.approx(LEAN)
    assert compile_work(planned(host=Host.SOURCE), table).total == pytest.approx(LEAN + 30)
    assert compile_work(planned(host=Host.SOURCE), TABLE).total == pytest.approx(LEAN + 2700), "as measured"
    assert compile_work(planned(host=Host.SOURCE), {}).total == 0


@pytest.mark.parametrize(("jobs", "minutes"), [(1, 54), (2, 44), (64, 44)])
def test_minutes_are_those_of_all_jobs_and_not_below_the_longest_unit(jobs: int, minutes: int) -> None:
    """One job takes 3,187 s (53.1 min); the longest unit takes 2,600 s (43.3 min) with any number of jobs."""
    assert compile_work(planned(), TABLE).minutes(jobs) == minutes


@pytest.mark.parametrize(
    ("plan", "jobs"),
    [
        pytest.param(planned(Profile.FULL), 2, id="full"),
        pytest.param(planned(Profile.LEAN), 2, id="lean"),
        pytest.param(planned(Profile.MINIMAL), 2, id="minimal"),
        pytest.param(planned(host=Host.SOURCE), 2, id="host-source"),
        pytest.param(planned(Profile.FULL, host=Host.SOURCE), 2, id="full-host-source"),
        pytest.param(planned(), None, id="cores-unknown"),
        pytest.param(packages.official(), 2, id="repacked"),
        pytest.param(latest("nvidia", "1.23.2", widen=False), 2, id="could-be-widened"),
        pytest.param(widened(latest("nvidia", "1.23.2", widen=True)), 2, id="widened"),
    ],
)
def test_what_is_known_of_the_time_is_told(
    told: Callable[[object], None], plan: BuildPlan, jobs: int | None
) -> None:
    """By widening, two architectures join four.

    Of 2,626 s for the weight 3.5, 12 s are the host compiler's: 747 s per architecture.
    """
    told("\n".join(estimate_lines(plan, TABLE, jobs)))


def test_the_shipped_table_comes_to_what_the_full_build_took() -> None:
    """The expected value is a row of docs/performance.md: ``legacy``, full, cold, 2026-11-24, 4,253 CPU s.

    Less 51 CPU s of 34 empty units that it compiled (measured on 2026-11-26), and less 0.59 for each of 121
    CUDA units, which pieces took more then (docs/decisions/0009-pieces.md).
    """
    took = 4253 - 51 - 0.59 * 121
    assert compile_work(planned(Profile.FULL), SHIPPED).total == pytest.approx(took, rel=0.05)


def test_the_shipped_table_comes_to_what_the_cold_minimal_build_took() -> None:
    """The expected values are a row of docs/performance.md: ``legacy``, minimal, cold, 2026-11-26: 323
    units, 356 CPU s, 183 s with 2 jobs."""
    units = unit_seconds(planned(Profile.MINIMAL), SHIPPED)
    assert len(units) == 323
    assert sum(units.values()) == pytest.approx(356, rel=0.05)
    assert compile_work(planned(Profile.MINIMAL), SHIPPED).minutes(2) == pytest.approx(183 / 60, rel=0.15)


def test_the_shipped_table_gives_lean_its_share_of_full() -> None:
    """The expected share is that of two builds of ``legacy`` on one machine: 3,079 of 6,131 CPU s
    (docs/scaling.md has the first; in the second, 300 of 813 units came from ccache)."""
    lean, full = (compile_work(planned(profile), SHIPPED).total for profile in (Profile.LEAN, Profile.FULL))
    assert lean / full == pytest.approx(3079 / 6131, rel=0.15)


def test_a_repacked_wheel_takes_no_compiler_at_all() -> None:
    assert compile_work(packages.official(base=NO_BASE), TABLE).total == 0
