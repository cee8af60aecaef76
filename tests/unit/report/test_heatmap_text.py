"""The heat map in a terminal: columns under their heads whatever libraries are called."""

from __future__ import annotations

from builder.binary.library import Inspected
from builder.report.heatmap import heat_maps
from builder.report.heatmap_text import text
from tests.support.factories.libraries import BROKEN, CARDS, OWN, PLAIN, PROVIDER, coverage

HEAD = """\
                        Maxwell      Pascal      Volta   Turing    Ampere     Ada  Hopper         Blackwell
library               5.0 5.2 5.3  6.0 6.1 6.2  7.0 7.2   7.5    8.0 8.6 8.7  8.9   9.0    10.0 10.3 11.0 12.0 12.1  containers
libprovider.so         .   .   .    N   N   .    N   .     ~      N   N   .    N     N      j    j    j    j    j           184
libcublas.so.12 *      N   N   .    N   N   .    N   .     N      N   N   .    N     N      N    N    .    N    N            20
libplain.so           no device code
libbroken.so          cannot be read: not an ELF file (at offset 0x0)
all that can be read   .   .   .    N   N   .    N   .     ~      N   N   .    N     N      j    j    .    j    j           204
"""  # noqa: E501


def shown(*reports: tuple[str, list[Inspected]]) -> str:
    return text(heat_maps(reports))


def test_a_table_as_a_person_would_set_it() -> None:
    first, rest = shown(("my.whl", [PROVIDER, OWN, PLAIN, BROKEN])).split("\n", 1)
    assert first == "my.whl"
    assert rest.startswith(HEAD)


def test_below_it_stand_sentence_gaps_and_the_star() -> None:
    rest = shown(("my.whl", [PROVIDER, OWN])).split("\n\n")
    assert rest[1].startswith("Runs natively on Pascal (6.0, 6.1), Volta (7.0), ")
    assert "\nlibprovider.so: for 7.5, 1 of 184 containers has nothing that runs.\n" in rest[1]
    assert "\n* NVIDIA's own: the library itself picks its code by device, " in rest[1]
    assert rest[2] == (
        "N native   j compiled by the driver at first use (JIT)   ~ some kernels missing   . not at all"
    )
    assert "\n*" not in shown(("my.whl", [PROVIDER]))


def test_a_long_name_has_a_line_to_itself() -> None:
    long = Inspected(name="lib" + 60 * "x" + ".so", coverage=coverage(native=CARDS))
    usual = shown(("w", [PROVIDER])).splitlines()
    found = shown(("w", [PROVIDER, long])).splitlines()
    assert found[:4] == usual[:4]
    assert found[4] == long.name
    assert found[5].startswith(17 * " " + "N   N   .    N")
    assert {line.index("8.9") for line in found if line.startswith("library")} == {usual[2].index("8.9")}


def test_nothing_but_long_names_still_has_a_head_over_its_columns() -> None:
    lines = shown(("w", [Inspected(name=70 * "y", coverage=coverage(native="8.9"))])).splitlines()
    assert lines[4].index("N") == lines[2].index("8.9") + 1


def test_sources_come_one_after_the_other_and_the_legend_once() -> None:
    found = shown(("first", [PLAIN]), ("second", [Inspected(name="lib/x.so")]))
    assert found.startswith("first\n")
    assert "\n\nsecond, in lib/\n" in found
    assert found.count("not at all") == 1


def test_no_line_is_wider_than_the_table() -> None:
    names = [
        Inspected(name=f"lib{place}.so", coverage=coverage(sections={f".s{place}": 10})) for place in range(9)
    ]
    lines = shown(("w", names)).splitlines()
    widest = max(len(line) for line in lines)
    assert widest == len(next(line for line in lines if line.startswith("library")))
