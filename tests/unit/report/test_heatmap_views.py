"""The heat map in a terminal and as a picture: columns under their heads whatever libraries are called."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import FileSystemLoader

from builder.binary.coverage import Support
from builder.binary.library import Inspected
from builder.gpu.table import CAPABILITIES, GENERATIONS
from builder.package.describe import InspectedSource, Promise
from builder.report.heatmap import heat_maps
from builder.report.heatmap_views import svg, text
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
    return text(heat_maps(InspectedSource(*report) for report in reports))


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


def test_what_a_manifest_promises_stands_above_the_libraries() -> None:
    promise = Promise("p", "", sm=("75",), capabilities=dict.fromkeys(CAPABILITIES, Support.JIT))
    lines = text(heat_maps([InspectedSource("w", [PROVIDER], (promise,))])).splitlines()
    assert lines[3].split() == ["manifest", "promises", *("j" for _ in CAPABILITIES)]
    assert lines[4].startswith("libprovider.so  ")


SVG = "{http://www.w3.org/2000/svg}"

EVIL = '"><script>alert(1)</script>&{{ 7*7 }}'


@pytest.fixture
def loader(root: Path) -> FileSystemLoader:
    return FileSystemLoader(root / "templates")


def drawn(loader: FileSystemLoader, *libraries: Inspected, label: str = "my.whl") -> ET.Element:
    """A picture as an XML parser reads it."""
    promise = Promise("p", "", sm=("75",), capabilities=dict.fromkeys(CAPABILITIES, Support.NATIVE))
    return ET.fromstring(svg(heat_maps([InspectedSource(label, libraries, (promise,))]), loader))  # noqa: S314 our own


def rows(picture: ET.Element) -> Iterator[tuple[str, list[str]]]:
    """Name and marks of each row of cells."""
    for row in picture.iterfind(f".//{SVG}g[@role='row']"):
        head = row.find(f"{SVG}text[@role='rowheader']")
        if head is not None:
            cells = row.iterfind(f"{SVG}g[@role='cell']/{SVG}text")
            yield "".join(head.itertext()), [cell.text or "" for cell in cells]


def test_the_picture_has_the_cells_of_the_table(loader: FileSystemLoader) -> None:
    found = dict(rows(drawn(loader, PROVIDER, OWN, PLAIN)))
    table = shown(("my.whl", [PROVIDER, OWN, PLAIN])).splitlines()
    assert found["manifest promises" * 2] == ["N"] * len(CAPABILITIES)
    assert found["libprovider.so" * 2] == table[3].split()[1:-1]
    assert found["libcublas.so.12libcublas.so.12 *"] == table[4].split()[2:-1]
    assert found["libplain.so" * 2] == []


def test_the_picture_says_in_words_what_it_shows(loader: FileSystemLoader) -> None:
    picture = drawn(loader, PROVIDER)
    title, description = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert picture.get("role") == "img"
    assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "my.whl: Runs natively on Pascal (6.0, 6.1), Volta (7.0), " in (description.text or "")
    hovers = ["".join(one.itertext()) for one in picture.iterfind(f".//{SVG}g[@role='cell']/{SVG}title")]
    assert any(hover.endswith("183 of 184 containers native, 1 with nothing that runs.") for hover in hovers)


def test_the_picture_needs_nothing_but_itself_and_knows_the_dark(
    loader: FileSystemLoader, root: Path
) -> None:
    made = svg(heat_maps([InspectedSource("w", [PROVIDER])]), loader)
    assert made == svg(heat_maps([InspectedSource("w", [PROVIDER])]), FileSystemLoader(root / "templates"))
    assert not {"url(", "@import", "@font-face", "href", "<script", "<image"} & set(
        made.replace("(", "( ").split()
    )
    assert made.count("http") == 1, "the name of the namespace"
    assert "prefers-color-scheme: dark" in made


def test_everything_lies_inside_the_picture(loader: FileSystemLoader) -> None:
    long = Inspected(name="lib" + 300 * "x" + ".so", coverage=coverage(native=CARDS, sections={"": 10}))
    picture = drawn(loader, PROVIDER, long, Inspected(name="b.so", problem=400 * "y"), label=500 * "z")
    left, top, width, height = map(float, str(picture.get("viewBox")).split())
    for one in picture.iter():
        if one.tag in {f"{SVG}text", f"{SVG}rect"}:
            assert left <= float(one.get("x", 0)) <= left + width
            assert top <= float(one.get("y", 0)) <= top + height
    texts = [
        one.text or (one[-1].tail or "") for one in picture.iterfind(f".//{SVG}text") if len(one) or one.text
    ]
    assert max(map(len, texts)) <= 140
    generations = [one.text for one in picture.iterfind(f".//{SVG}text[@class='strong small middle']")]
    assert generations == [generation.name for generation in GENERATIONS]


def test_no_name_in_a_file_becomes_part_of_the_picture(loader: FileSystemLoader) -> None:
    picture = drawn(
        loader,
        Inspected(name=EVIL, coverage=PROVIDER.coverage),
        Inspected(name="b", problem=EVIL),
        label=EVIL,
    )
    tags = {one.tag.removeprefix(SVG) for one in picture.iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "text", "g"}
    assert "alert(1)" in "".join(picture.itertext())
