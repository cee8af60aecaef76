"""Tests of the simulated schedule of a build against schedules drawn by hand."""

from __future__ import annotations

import pytest

from benchmarks.scaling import (
    Machine,
    Planned,
    Unit,
    in_pieces,
    one_architecture_a_machine,
    one_by_one,
    pooled,
    whole,
)
from builder.gpu.architectures import Arch


def units(*seconds: float) -> list[Unit]:
    return [Unit(value, 1, int(value)) for value in seconds]


def arches(*numbers: str) -> tuple[Arch, ...]:
    return tuple(map(Arch.parse, numbers))


def test_units_start_in_order_as_slots_become_free() -> None:
    """Of two slots, 5 and 3 start at 0, 2 at 3 and 4 at 5; the last ends at 9.

    Until 8.1 both slots are taken up to 5, then one.
    """
    found = Machine(2, 100).run(units(5, 3, 2, 4))
    assert found.wall == 9
    assert found.taken == pytest.approx((8.1 + 5) / (2 * 8.1))


def test_a_unit_that_waits_for_memory_is_not_passed() -> None:
    """The second heavy unit waits for the first; the light one behind it waits too, though it would fit."""
    heavy, light = Unit(5, 6, 9), Unit(1, 1, 1)
    assert Machine(3, 10).run([heavy, heavy, light]).wall == 10
    assert Machine(3, 10).run([heavy, light, heavy]).wall == 10
    assert Machine(3, 12).run([heavy, heavy]).wall == 5


def test_a_unit_heavier_than_the_budget_runs_alone() -> None:
    assert Machine(3, 10).run([Unit(1, 1, 9), Unit(5, 60, 8), Unit(1, 1, 7)]).wall == 7


def test_pieces_run_side_by_side_and_the_host_after_them() -> None:
    """Four pieces of 3 s take 6 s on two slots and 3 s on four; the host compiler's 2 s follow."""
    unit = Unit(2, 1, 5, (3, 3, 3, 3))
    assert [Machine(jobs, 100).run([unit]).wall for jobs in (1, 2, 4, 9)] == [14, 8, 5, 5]


def test_pieces_need_as_much_memory_as_the_unit() -> None:
    unit = Unit(2, 4, 5, (3, 3, 3, 3))
    assert [Machine(9, budget).run([unit]).wall for budget in (7, 8, 16)] == [14, 8, 5]


def test_a_cheaper_unit_waits_for_the_pieces_of_a_dearer_one() -> None:
    """The dear unit's pieces take both slots until 4, its host compiler one until 6; the light
    unit runs 4 to 7."""
    dear, light = Unit(2, 1, 9, (2, 2, 2, 2)), Unit(3, 1, 1)
    assert Machine(2, 100).run([dear, light]).wall == 7
    assert Machine(2, 100).run([Unit(2, 1, 0, (2, 2, 2, 2)), light]).wall == 8, "it goes first"


def test_a_pool_ends_with_one_longest_unit_where_variants_in_line_have_one_each() -> None:
    variants = [units(8, 1, 1), units(8, 1, 1)]
    assert one_by_one(variants, 2, 64).wall == 16
    assert pooled(variants, 2, 64).wall == 10


def test_a_job_for_four_gib_bounds_variants_in_line() -> None:
    assert one_by_one([units(1, 1, 1, 1)], 4, 8).wall == 2
    assert pooled([units(1, 1, 1, 1)], 4, 8).wall == 1


def test_what_an_earlier_variant_compiled_is_found() -> None:
    """Of 26 CPU s for two architectures, 6 are the host compiler's."""
    host = Planned("a.cc.o", 9, 70)
    first = [host, Planned("b.cu.o", 26, 80, arches("50", "52"))]
    second = [host, Planned("b.cu.o", 26, 80, arches("75", "80"))]
    assert [[unit.total for unit in units] for units in whole([first, second])] == [[9, 26], [0.1, 26]]
    made = in_pieces([first, second])
    assert [[unit.seconds for unit in units] for units in made] == [[9, 6], [0.1, 0.1]]
    assert [units[1].pieces for units in made] == [(10, 10), (10, 10)]


def test_machines_for_an_architecture_are_followed_by_those_for_a_variant() -> None:
    """The slower architecture has both CUDA units, 10 and 5 s in parallel; the host compiler's 6,
    4, 9 s follow."""
    both = [Planned("a.cu.o", 26, 1, arches("50", "52")), Planned("b.cu.o", 9, 1, arches("52"))]
    assert one_architecture_a_machine([[*both, Planned("c.cc.o", 9, 1)]]) == (10, 9)
