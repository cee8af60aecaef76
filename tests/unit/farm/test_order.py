"""Tests of ordering a ``build.ninja`` in CMake 3.31's form: the dearest unit is first, the rest
is unchanged."""

from __future__ import annotations

from collections import Counter

import pytest

from builder.farm.ninja import costliest_first

HEAD = """\
# CMAKE generated file: DO NOT EDIT!
ninja_required_version = 1.5
include CMakeFiles/rules.ninja

"""

A = """\
build CMakeFiles/p.dir/a.cc.o: CXX_COMPILER__p_unscanned_Release /src/a.cc || cmake_order_p
  DEP_FILE = CMakeFiles/p.dir/a.cc.o.d
  FLAGS = -O3 -DNDEBUG
  OBJECT_DIR = CMakeFiles/p.dir

"""

B = """\
build CMakeFiles/p.dir/b.cu.o: CUDA_COMPILER__p_unscanned_Release /src/b.cu | /src/extra || order
  FLAGS = -O3 --generate-code=arch=compute_50,code=[sm_50]
\tDEFINES = -DA="b c"

"""

C = """\
build CMakeFiles/p.dir/c.c.o: C_COMPILER__p_unscanned_Release /src/c.c
  FLAGS = -O3
"""

ORDER = "build cmake_order_p: phony || CMakeFiles/p.dir\n\n"

LINK = """\
build libp.so: CXX_SHARED_LIBRARY_LINKER__p_Release CMakeFiles/p.dir/a.cc.o CMakeFiles/p.dir/b.cu.o $
 CMakeFiles/p.dir/c.c.o | libq.a
  LINK_FLAGS = -Wl,-rpath=$ORIGIN
  SONAME = libp.so

"""

TAIL = "build all: phony libp.so\ndefault all\n"

WHOLE = HEAD + ORDER + A + B + LINK + C + TAIL

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
