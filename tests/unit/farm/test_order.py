"""Tests of ordering a ``build.ninja`` in CMake 3.31's form: the dearest unit is first, the rest
is unchanged."""

import re
from collections import Counter

import pytest

from builder.farm.ninja import costliest_first
from tests.support.tables import data_text

WHOLE = data_text("farm/order.ninja")

HEAD, ORDER, A, B, LINK, REST = re.split(r"(?<=\n\n)", WHOLE)

C, TAIL = re.split("(?=build all)", REST)

COSTS = {"CMakeFiles/p.dir/a.cc.o": 4.0, "CMakeFiles/p.dir/b.cu.o": 761.0, "CMakeFiles/p.dir/c.c.o": 30.0}


def outputs(ninja: str) -> list[str]:
    """Return the compiled outputs, in order."""
    lines = (line.split(":")[0] for line in ninja.splitlines() if "_COMPILER__" in line)
    return [line.removeprefix("build CMakeFiles/p.dir/") for line in lines]


def test_the_costliest_unit_stands_first_and_the_rest_is_as_it_was() -> None:
    assert outputs(WHOLE) == ["a.cc.o", "b.cu.o", "c.c.o"]
    made = costliest_first(WHOLE, COSTS.__getitem__)
    assert outputs(made) == ["b.cu.o", "c.c.o", "a.cc.o"]
    assert Counter(made.splitlines()) == Counter(WHOLE.splitlines())
    assert all(statement.strip("\n") in made for statement in (HEAD, ORDER, A, B, LINK, TAIL))
    assert made.startswith(HEAD), "rules stand before the units"
    assert costliest_first(made, lambda _: 1.0) == made, "units of one cost stay as they are"


@pytest.mark.parametrize("text", ["", HEAD, HEAD + ORDER + LINK + TAIL])
def test_nothing_to_compile_is_nothing_to_change(text: str) -> None:
    assert costliest_first(text, COSTS.__getitem__) == text


def test_a_file_that_ends_with_a_unit() -> None:
    made = costliest_first(HEAD + A + C.rstrip("\n") + "\n", COSTS.__getitem__)
    assert outputs(made) == ["c.c.o", "a.cc.o"]
