"""Tests of the simulated schedule of a build against schedules drawn by hand."""

from dataclasses import replace

import pytest

from benchmarks.scaling import (
    Build,
    Machine,
    Planned,
    Step,
    Unit,
    one_architecture_a_machine,
    planned,
    rows,
    simulated,
)
from builder.facts.gpu.architectures import Arch
from builder.farm import costs
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter


def unit(name: str, seconds: float, peak: int, rank: int, pieces: tuple[float, ...] = ()) -> Unit:
    """Return a unit that shares no step with units of other names."""
    steps = tuple((Step(f"{name} {at}", of),) for at, of in enumerate(pieces))
    return Unit(name, Step(name, seconds), peak, rank, steps)


def test_units_start_in_order_as_slots_become_free() -> None:
    """Of two slots, 5 and 3 start at 0, 2 at 3 and 4 at 5; the last ends at 9.

    Until 8.1 both slots are taken up to 5, then one.
    """
    found = Machine(2, 100).run([unit(str(seconds), seconds, 1, seconds) for seconds in (5, 3, 2, 4)])
    assert found.wall == 9
    assert found.taken == pytest.approx((8.1 + 5) / (2 * 8.1))


def test_pieces_run_side_by_side_and_the_host_after_them() -> None:
    """Four pieces of 3 s take 6 s on two slots and 3 s on four; the host compiler's 2 s follow.

    Each piece needs as much memory as the unit.
    """
    one = unit("a", 2, 4, 5, (3, 3, 3, 3))
    assert [Machine(jobs, 100).run([one]).wall for jobs in (1, 2, 4, 9)] == [14, 8, 5, 5]
    assert [Machine(9, budget).run([one]).wall for budget in (7, 8, 16)] == [14, 8, 5]


def test_memory_is_given_back_when_the_last_ptx_is_made() -> None:
    """On three slots and 10 of memory, the other unit (6) begins when the first, of 6, has 4 left.

    PTX of 3 s and of 1 s, made one after the other for want of memory, each with SASS of 2 s: 4 left at 6.
    """
    ptx = ((Step("a ptx", 3), Step("a sass", 2)), (Step("b ptx", 1), Step("b sass", 2)))
    first, other = Unit("a", Step("a host", 1), 6, 9, ptx), unit("c", 9, 6, 1)
    assert Machine(3, 10).run([first, other]).wall == 9 + 9
    assert Machine(3, 10).run([replace(first, after_ptx=4), other]).wall == 6 + 9
    assert Machine(3, 10).run([replace(first, after_ptx=5), other]).wall == 9 + 9
    alike = [replace(first, after_ptx=4), Unit("b", Step("b host", 1), 6, 8, ptx, after_ptx=4)]
    light = unit("d", 9, 2, 1)
    assert Machine(3, 10).run([*alike, light]).wall == pytest.approx(6 + 3 * 0.1 + 9), "found PTX counts"


def test_what_was_begun_is_found() -> None:
    """Two variants' units have their PTX (6 s) in common, and each has SASS (1 s): 7 s, then 1.1 s.

    On two slots the second begins at 0 too, and its SASS when the first one's PTX is there.
    """
    ptx = Step("ptx", 6)
    both = [Unit("a", Step("host", 0), 1, 9, ((ptx, Step(name, 1)),)) for name in ("sm_80", "sm_89")]
    assert Machine(1, 100).run(both).wall == pytest.approx(8.1)
    assert Machine(2, 100).run(both).wall == pytest.approx(7.1)


def test_a_common_unit_waits_without_a_slot_for_the_other_variants() -> None:
    """On two slots ``other`` begins at 0 beside the first of the common ones, whose second begins at 6."""
    common = [Unit("a", Step(f"a {number}", 6), 1, 9, is_common=True) for number in range(2)]
    other = unit("b", 12, 1, 1)
    assert Machine(2, 100).run([*common, other]).wall == 12
    uncommon = [replace(one, is_common=False) for one in common]
    assert Machine(2, 100).run([*uncommon, other]).wall == 18


def own(*arches: str) -> dict[Arch, Arch]:
    """Return architectures with PTX of their own."""
    return {arch: arch for arch in map(Arch.parse, arches)}


def test_the_simulator_finds_what_builds_took() -> None:
    """The expected values are those of cold builds on two cores (docs/scaling.md)."""
    wiring = Wiring(ROOT, dist=ROOT / "dist", reporter=FakeReporter())
    known = costs.read(ROOT / "builder/farm/costs.tsv")
    _, _, builds = (ROOT / "docs/results/scaling-builds.txt").read_text(encoding="utf-8").partition("\n\n")
    took = [Build.parse(line) for line in builds.splitlines()]
    found = [simulated(build, planned(wiring, known, build.profile)) for build in took]
    assert len(found) >= 3
    assert found == [pytest.approx(build.seconds, rel=0.15) for build in took]
    full = next(rows(planned(wiring, known, "full")))
    assert 2 * full.bound == pytest.approx(14_092, rel=0.05), "CPU seconds of --all (docs/building.md)"


def test_machines_for_an_architecture_are_followed_by_those_for_a_variant() -> None:
    """The slower architecture has both CUDA units, 10 and 5 s in parallel; the host compiler's 6,
    4, 9 s follow."""
    both = [
        Planned("a.cu.o", 6, 1, each=10, ptx=own("50", "52")),
        Planned("b.cu.o", 4, 1, each=5, ptx=own("52")),
    ]
    assert one_architecture_a_machine([[*both, Planned("c.cc.o", 9, 1)]]) == (10, 9)
