"""Tests of the heat map: marks, counts and total, in a terminal and as a picture, with any file names."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace

from builder.binary.coverage import Support
from builder.binary.library import Inspected
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import CAPABILITIES
from builder.finding import Code, Finding
from builder.inspect.command import page, svg
from builder.inspect.report.heatmap import HeatMap, HeatMapRow, heat_maps, text
from tests.support import present
from tests.support.factories.libraries import BROKEN, CARDS, IDLE, OWN, PLAIN, PROVIDER, coverage
from tests.support.html_page import TEMPLATES
from tests.support.messages import Told


def mapped(*libraries: Inspected, label: str = "a wheel") -> HeatMap:
    (found,) = heat_maps([InspectedSource(label, libraries)])
    return found


def marks(row: HeatMapRow) -> str:
    return "".join(cell.mark for cell in row.cells)


def hover(row: HeatMapRow, device: str) -> str:
    return row.cells[[str(capability) for capability in CAPABILITIES].index(device)].hover


def test_the_total_is_the_worst_of_all_and_names_who_is_to_blame(told: Told) -> None:
    total = present(mapped(PLAIN, PROVIDER, OWN, IDLE).total)
    assert (total.name, total.containers, marks(total)) == ("all libraries", 204, "...NN.N.~NN.NNjj.jj")
    for device in ("5.0", "5.3", "11.0", "8.6"):
        told(hover(total, device))
    many = mapped(*(Inspected(f"lib{place}.so", coverage(native=CARDS)) for place in range(6)))
    told(hover(present(many.total), "8.7"))


def test_the_folder_that_all_share_is_said_once() -> None:
    names = ["nvidia/cudnn/lib/liba.so", "nvidia/cudnn/lib/sub/libb.so", "nvidia/cudnn/libc.so"]
    found = mapped(*(Inspected(name=name) for name in names))
    assert found.folder == "nvidia/cudnn/"
    assert [row.name for row in found.rows] == ["lib/liba.so", "lib/sub/libb.so", "libc.so"]
    assert mapped(Inspected(name="lib/a.so"), Inspected(name="library/a.so")).folder == ""
    assert mapped(Inspected(name="lib/a.so")).rows[0].name == "a.so"


def test_notes_are_one_sentence_a_library(told: Told) -> None:
    odd = Inspected("z", coverage(containers=90, native=CARDS, sections={"": 90}, unknown=1))
    told("\n".join(f"{note.name}: {note.text}" for note in mapped(PLAIN, PROVIDER, odd).notes))


def test_a_note_that_several_libraries_share_is_said_once(told: Told) -> None:
    some = [replace(PROVIDER, name=f"lib{letter}.so") for letter in "abcde"]
    notes = [note for note in mapped(*some).notes if note.name.startswith("lib")]
    told("\n".join(f"{note.name}: {note.text}" for note in notes))


def test_details_are_of_what_could_be_read(told: Told) -> None:
    code = coverage(nothing_to_run=3, ltoir=["75"])
    library = Inspected("libx.so", code, soname="libx.so.1", needed=("libc.so.6", "libm.so.6"))
    found = mapped(BROKEN, library)
    assert found.details == (("libx.so", library),)
    (row,) = [line for line in page([found], TEMPLATES).split("<tr>") if "<td>" in line]
    told(" ".join(re.sub("<[^>]*>", " ", row.partition("</tr>")[0]).split()))
    assert 'title="libc.so.6, libm.so.6"' in row


def test_nothing_of_a_file_reaches_a_reader_unprintable() -> None:
    evil = "\x1b]0;x\x07\udcff"
    library = Inspected(f"d{evil}/a{evil}", coverage(sections={evil: 10}), soname=evil, needed=(evil,))
    found = mapped(library, Inspected(f"d{evil}/b", problem=evil), label=evil)
    everything = [found.label, found.folder, found.sentence, *(row.name + row.remark for row in found.rows)]
    everything += [note.name + note.text for note in found.notes]
    everything += page([found], TEMPLATES).split("\n")
    everything += [cell.hover for row in (*found.rows, found.total) if row for cell in row.cells]
    assert all(text.isprintable() for text in everything)


def test_a_promise_has_a_row_above_the_libraries_and_a_note(told: Told) -> None:
    promised = {device: Support.NATIVE for device in CAPABILITIES if str(device) != "12.1"}
    promise = Promise("ortpacks-x", "", sm=("75", "86"), capabilities=promised, elsewhere=2)
    (found,) = heat_maps([InspectedSource("x", [PROVIDER], (promise,))])
    assert [row.name for row in found.all_rows] == ["manifest promises", "libprovider.so", "all libraries"]
    assert marks(found.promises[0]) == "N" * (len(CAPABILITIES) - 1) + "?"
    assert (found.promises[0].count, found.promises[0].summary) == ("", True)
    told(hover(found.promises[0], "12.1"))
    told(found.texts[0])


def test_a_broken_promise_is_told_with_both_sides(told: Told) -> None:
    broken = Finding(Code.B007, "a/manifest.json", "runs otherwise", wanted="native", got="none")
    promise = Promise("ortpacks-x", "a/", sm=("75",), findings=(broken,))
    (found,) = heat_maps([InspectedSource("x", [PROVIDER], (promise,))])
    told("\n".join(found.texts[:2]))


def shown(*reports: tuple[str, list[Inspected]]) -> str:
    return text(heat_maps(InspectedSource(*report) for report in reports))


def test_a_table_as_a_person_would_set_it(told: Told) -> None:
    told(shown(("my.whl", [PROVIDER, OWN, PLAIN, BROKEN])))
    assert "\n*" not in shown(("my.whl", [PROVIDER]))


UNLISTED = Inspected(
    name="libnew.so",
    coverage=replace(coverage(native="8.8", jit="10.7"), sass=(Arch(8, 8),), ptx=(Arch(10, 7),)),
)
"""A library with code for both GPUs that NVIDIA's list lacks."""


def test_a_gpu_that_nvidia_does_not_list_has_a_column(told: Told) -> None:
    told(shown(("a", [UNLISTED]), ("b", [PROVIDER])))
    picture = drawn(UNLISTED)
    named = {one.text or one[0].tail for one in picture.iterfind(f".//{SVG}text") if len(one)}
    assert {"8.8", "10.7"} <= named
    assert dict(rows(picture))["libnew.so" * 2].count("N") == 1


def test_what_a_manifest_alone_promises_has_a_column_and_another_is_silent_of_it(told: Told) -> None:
    named = {**dict.fromkeys(CAPABILITIES, Support.JIT), Capability(8, 8): Support.NATIVE}
    silent = Promise("q", "q/", sm=("75",), capabilities=dict.fromkeys(CAPABILITIES, Support.JIT))
    promise = Promise("p", "p/", sm=("88",), capabilities=named)
    (found,) = heat_maps([InspectedSource("w", [PROVIDER], (promise, silent))])
    ours, theirs = (row.cells[12] for row in found.promises)
    assert (ours.mark, theirs.mark, len(found.rows[0].cells)) == ("N", "?", len(CAPABILITIES) + 1)
    told(theirs.hover)


SVG = "{http://www.w3.org/2000/svg}"

TAGS = {"svg", "title", "desc", "style", "rect", "text", "g"}

EVIL = '"><script>alert(1)</script>&{{ 7*7 }}'


def drawn(*libraries: Inspected, label: str = "my.whl") -> ET.Element:
    """Return a picture, read by an XML parser."""
    promise = Promise("p", "", sm=("75",), capabilities=dict.fromkeys(CAPABILITIES, Support.NATIVE))
    return ET.fromstring(svg(heat_maps([InspectedSource(label, libraries, (promise,))]), TEMPLATES))  # noqa: S314 our own


def rows(picture: ET.Element) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the marks of each row of cells."""
    for row in picture.iterfind(f".//{SVG}g[@role='row']"):
        head = row.find(f"{SVG}text[@role='rowheader']")
        if head is not None:
            cells = row.iterfind(f"{SVG}g[@role='cell']/{SVG}text")
            yield "".join(head.itertext()), [cell.text or "" for cell in cells]


def test_the_picture_has_the_cells_of_the_table() -> None:
    found = dict(rows(drawn(PROVIDER, OWN, PLAIN)))
    table = shown(("my.whl", [PROVIDER, OWN, PLAIN])).splitlines()
    assert found["manifest promises" * 2] == ["N"] * len(CAPABILITIES)
    assert found["libprovider.so" * 2] == table[3].split()[1:-1]
    assert found["libcublas.so.12libcublas.so.12 *"] == table[4].split()[2:-1]
    assert found["libplain.so" * 2] == []


def test_the_picture_says_in_words_what_it_shows(told: Told) -> None:
    picture = drawn(PROVIDER)
    title, description = (present(picture.find(f"{SVG}{tag}")) for tag in ("title", "desc"))
    assert picture.get("role") == "img"
    assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    told(" ".join((description.text or "").split()))
    hovers = ["".join(one.itertext()) for one in picture.iterfind(f".//{SVG}g[@role='cell']/{SVG}title")]
    assert any(hover.endswith("183 of 184 containers native, 1 with nothing that runs.") for hover in hovers)


def test_everything_lies_inside_the_picture_and_no_name_becomes_part_of_it() -> None:
    long = Inspected("lib" + 300 * "x" + ".so", coverage(native=CARDS, sections={"": 10}))
    evil = Inspected(EVIL, PROVIDER.coverage), Inspected("b", problem=EVIL + 400 * "y")
    maps = heat_maps([InspectedSource(EVIL + 500 * "z", [PROVIDER, long, *evil])])
    text = svg(maps, TEMPLATES)
    assert text == svg(maps, TEMPLATES)
    assert text.count("http") == 1, "the name of the namespace"
    assert "prefers-color-scheme: dark" in text
    picture = ET.fromstring(text)  # noqa: S314 our own
    assert {one.tag.removeprefix(SVG) for one in picture.iter()} == TAGS
    assert "alert(1)" in "".join(picture.itertext())
    left, top, width, height = map(float, str(picture.get("viewBox")).split())
    for one in picture.iter():
        if one.tag in {f"{SVG}text", f"{SVG}rect"}:
            assert left <= float(one.get("x", 0)) <= left + width
            assert top <= float(one.get("y", 0)) <= top + height
    written = [
        one.text or (one[-1].tail or "") for one in picture.iterfind(f".//{SVG}text") if len(one) or one.text
    ]
    assert max(map(len, written)) <= 140
