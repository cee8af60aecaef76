"""The simulated schedule, against schedules that were drawn by hand."""

from __future__ import annotations

import pytest

from benchmarks.scaling import Unit, one_by_one, pooled, simulated, units_of
from builder.inside.costs import Cost


def units(*seconds: float, peak: int = 1) -> list[Unit]:
    return [Unit(value, peak, int(value)) for value in seconds]


def test_units_start_in_order_as_slots_become_free() -> None:
    """Two slots: 5 and 3 begin, 2 at 3, 4 at 5. Done at 9; until 8.1 both are taken up to 5, then one."""
    found = simulated(units(5, 3, 2, 4), 2, 100)
    assert found.wall == 9
    assert found.taken == pytest.approx((8.1 + 5) / (2 * 8.1))


def test_a_unit_that_waits_for_memory_is_not_passed() -> None:
    """The second heavy one waits for the first; the light one behind it could have begun at once."""
    heavy, light = Unit(5, 6, 9), Unit(1, 1, 1)
    assert simulated([heavy, heavy, light], 3, 10).wall == 10
    assert simulated([heavy, light, heavy], 3, 10).wall == 10
    assert simulated([heavy, heavy], 3, 12).wall == 5


def test_a_unit_heavier_than_the_budget_runs_alone() -> None:
    assert simulated([Unit(1, 1, 9), Unit(5, 60, 8), Unit(1, 1, 7)], 3, 10).wall == 7


def test_a_pool_ends_with_one_longest_unit_where_variants_in_line_have_one_each() -> None:
    variants = [units(8, 1, 1), units(8, 1, 1)]
    assert one_by_one(variants, 2, 64).wall == 16
    assert pooled(variants, 2, 64).wall == 10


def test_a_job_for_four_gib_bounds_variants_in_line() -> None:
    assert one_by_one([units(1, 1, 1, 1)], 4, 8).wall == 2
    assert pooled([units(1, 1, 1, 1)], 4, 8).wall == 1


def test_what_an_earlier_variant_compiled_comes_from_the_cache() -> None:
    known = {"a.cc.o": Cost(cpu=9, architectures=1, peak=70)}
    first, second = units_of([{"a.cc.o": 9, "b.cu.o": 7}, {"a.cc.o": 9, "b.cu.o": 5}], known)
    assert [unit.seconds for unit in first] == [9, 7]
    assert [unit.seconds for unit in second] == [0.1, 5]
    assert [unit.peak for unit in first] == [70, 2500]
