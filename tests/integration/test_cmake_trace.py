"""The reader of CMake's language against CMake itself, which traces each command that it runs.

The sources are made up, nested at random from a seed. CMake decides every condition; the reader is given a
part of the settings and must be right on what it calls certain, and must miss nothing.
"""

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.config.inputs import Input
from builder.facts.ort.cmake_reader import reached
from builder.io.wiring import Wiring
from tests.support import ROOT

SETTINGS = {"A": "ON", "B": "OFF", "C": "some", "D": ""}

CONDITIONS = (
    *("A", "B", "NOT A", "C", "NOT D", "A AND B", "A OR B AND D", "NOT (A OR B) OR A", "UNIX", "WIN32 OR B"),
    *('C STREQUAL "some"', '"${C}" STREQUAL "other"', 'C MATCHES "^s(o|x)m"', "X", "NOT Y AND A", "OPT"),
    *('CMAKE_SYSTEM_NAME STREQUAL "Linux"', "DEFINED X", "${B}", "proj_never_set", "DEP"),
)

STEPS = (
    *("set(X ON)", "set(X OFF)", "set(Y ${C})", 'set(Y "${C}s;t" CACHE STRING "y")', "list(APPEND L a ${C})"),
    *('option(OPT "o" ON)', 'option(A "a" OFF)', 'cmake_dependent_option(DEP "d" ON "A;NOT B" OFF)'),
    *("include(more/one.cmake)", "include(two)", "work(x ${C})", "turn(B)", "message(STATUS ${X})"),
)


@pytest.fixture(scope="module")
def cmake() -> Path:
    shop = Wiring(ROOT)
    base = shop.project.bases["assembled"]
    program = shop.store(shop.lock).unpack(Input.wheel(base.cmake.spec)) / "cmake/data/bin/cmake"
    program.chmod(0o755)
    return program


class Writer:
    """A writer of a source with the files of a folder ``cmake``."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same sources each time

    def files(self) -> dict[str, str]:
        head = (
            "cmake_minimum_required(VERSION 3.28)\nproject(proj NONE)\ninclude(CMakeDependentOption)\n"
            "list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/modules)\n"
            "function(work one two)\nif(${two} STREQUAL one OR A)\nset(X inner)\nendif()\nmessage(STATUS w)\n"
            "endfunction()\nmacro(turn name)\nset(${name} ON)\nendmacro()\n"
        )
        return {
            "CMakeLists.txt": head + "\n".join(self._block(2)) + "\n",
            "more/one.cmake": "\n".join(self._block(1, STEPS[:8])) + "\n",
            "modules/two.cmake": "\n".join(self._block(1, STEPS[:8])) + "\n",
        }

    def _block(self, depth: int, steps: tuple[str, ...] = STEPS) -> Iterator[str]:
        for _ in range(self._random.randint(2, 5)):
            kind = self._random.random()
            if depth == 0 or kind < 0.4:
                yield self._random.choice(steps)
            elif kind < 0.85:
                yield f"if({self._random.choice(CONDITIONS)})"
                yield from self._block(depth - 1, steps)
                if self._random.random() < 0.6:
                    yield f"elseif({self._random.choice(CONDITIONS)})"
                    yield from self._block(depth - 1, steps)
                if self._random.random() < 0.6:
                    yield "else()"
                    yield from self._block(depth - 1, steps)
                yield "endif()"
            else:
                yield self._random.choice(("foreach(X ${L} B)", "foreach(X IN LISTS L)", "foreach(X A ON)"))
                yield from self._block(depth - 1, steps)
                yield "endforeach()"


_STRUCTURE = {"if", "elseif", "else", "endif", "endforeach", "endfunction", "endmacro"}


def traced(cmake: Path, folder: Path) -> set[tuple[str, int]]:
    """Return file and line of each command that CMake runs."""
    trace = folder.parent / "trace.json"
    flags = ["--trace", "--trace-format=json-v1", f"--trace-redirect={trace}"]
    settings = [f"-D{name}={value}" for name, value in SETTINGS.items()]
    command = [str(cmake), *settings, *flags, "-S", str(folder), "-B", str(folder.parent / "build")]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line) for line in trace.read_text().splitlines()[1:]]
    return {
        (str(Path(row["file"]).relative_to(folder)), row["line"])
        for row in rows
        if Path(row["file"]).is_relative_to(folder) and row["cmd"].lower() not in _STRUCTURE
    }


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 30))]
)
def test_the_reader_misses_no_command_and_is_right_where_it_is_certain(
    cmake: Path, tmp_path: Path, seed: int
) -> None:
    files = Writer(seed).files()
    for name, text in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = traced(cmake, tmp_path / "source")
    assert len(ran) > 5
    for known in (tuple(SETTINGS), ("A", "C"), ("B",), ()):
        settings = {name: SETTINGS[name] for name in known}
        found = list(reached(files, settings, [name for name in SETTINGS if name not in known]))
        certain = {(run.command.file, run.command.line) for run in found if run.is_certain}
        possible = {(run.command.file, run.command.line) for run in found}
        assert certain <= ran <= possible, known
