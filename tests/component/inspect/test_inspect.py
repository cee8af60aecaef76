"""Tests of inspect: the GPUs that libraries' code runs on as a table, JSON and a page, also for
damaged files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jinja2 import FileSystemLoader

from builder.binary.library import Inspected
from builder.contents.supported_gpus import InspectedSource
from builder.inspect import reading as stage
from builder.inspect.command import page as page_of
from builder.inspect.reading import inspect
from builder.inspect.report.heatmap import heat_maps
from builder.inspect.report.heatmap import text as text_of
from tests.support.factories.binaries import BLACKWELL, LTOIR, PTX, SASS, container, elf, image, sass
from tests.support.factories.libraries import BROKEN, IDLE, OWN, PLAIN, PROVIDER
from tests.support.html_page import Page
from tests.support.messages import Told
from tests.support.schemas import schema

MODERN = elf({".nv_fatbin": sass(75, 80, 86) + container(*(image(SASS, arch) for arch in (75, 80, 86)))})
"""A library of two containers, each with the same three architectures."""

CUT_UNIT = elf({".nv_fatbin": sass(75, 80, 86) + sass(80, 86)})
"""A library whose second container lacks 7.5."""

JIT = elf(
    {".nv_fatbin": container(image(SASS, 75), image(PTX, 90, BLACKWELL))},
    soname="libjit.so.1",
    needed=["libc.so.6"],
)

ELSEWHERE = elf({".nv_fatbin": sass(52), ".ldata": sass(80) + container(image(LTOIR, 50))})

FILES = {
    "libonnxruntime_providers_cuda.so": MODERN,
    "libpart.so": CUT_UNIT,
    "libjit.so.1": JIT,
    "libcufft.so.11": ELSEWHERE,
    "bare.fatbin": sass(75, 80),
    "libplain.so.1": elf({".text": b"code"}),
    "libcut.so": MODERN[:200],
    "libbad.so": elf({".nv_fatbin": b"no container" * 9}),
    "libempty.so": b"",
    "libtext.so": b"INPUT(-lfoo)\n",
}

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}.so'

SURE = {"confidence": "high", "reason": None}

Entry = dict[str, Any]
"""A library in the JSON form, whose types the schema's test checks."""


Named = tuple[str, Sequence[Inspected]]
"""A source's label and its libraries."""


def _sources(named: Iterable[Named]) -> list[InspectedSource]:
    return [InspectedSource(label, libraries) for label, libraries in named]


def table(named: Iterable[Named]) -> str:
    return text_of(heat_maps(_sources(named)))


def page(named: Iterable[Named], loader: FileSystemLoader) -> str:
    return page_of(heat_maps(_sources(named)), loader)


def document(named: Iterable[Named]) -> dict[str, object]:
    return stage.document(_sources(named))


@pytest.fixture
def found(tmp_path: Path) -> tuple[Inspected, ...]:
    """Inspect libraries of every kind."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return inspect((name, tmp_path / name) for name in FILES)


@pytest.fixture
def loader(root: Path) -> FileSystemLoader:
    return FileSystemLoader(root / "templates")


def supported(entry: Entry, support: str) -> list[str]:
    return [device for device, cell in entry["capabilities"].items() if cell["support"] == support]


def entries(found: tuple[Inspected, ...]) -> dict[str, Entry]:
    said = json.loads(json.dumps(document([("here", found)])))
    return {entry["name"]: entry for entry in said["sources"][0]["libraries"]}


def test_the_table_shows_each_library_and_what_cannot_be_read(
    found: tuple[Inspected, ...], told: Told
) -> None:
    told(table([("here", found[:3])]))
    told(table([("here", found)]))


def test_a_file_that_is_not_there_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    (gone, folder) = inspect([("gone.so", tmp_path / "gone.so"), ("folder.so", tmp_path)])
    assert "No such file" in gone.problem
    assert folder.problem


def test_json_is_as_its_schema_says(found: tuple[Inspected, ...]) -> None:
    reports = [("here", found), ("empty", ()), ("plain", [PLAIN]), ("made", [PROVIDER, OWN, IDLE, BROKEN])]
    said = json.loads(json.dumps(document(reports)))
    schema("inspect").validate(said)
    assert [source["source"] for source in said["sources"]] == ["here", "empty", "plain", "made"]
    assert said["sources"][1]["capabilities"] == said["sources"][2]["capabilities"] == {}
    assert said["sources"][3]["capabilities"]["7.5"] == {**SURE, "support": "partial"}


def test_json_has_what_was_counted(found: tuple[Inspected, ...], told: Told) -> None:
    by_name = entries(found)
    for entry in by_name.values():
        runs = {support: " ".join(supported(entry, support)) for support in ("native", "jit", "partial")}
        told(json.dumps({**entry, "capabilities": runs}, indent=1))
    counts = {"native": 1, "jit": 0, "none": 1}
    assert by_name["libpart.so"]["capabilities"]["7.5"] == {**SURE, **counts, "support": "partial"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"containers": -1},
        {"sass": ["sm_75"]},
        {"capabilities": {"8.6": "native"}},
        {"capabilities": {"8.6": {"support": "yes", "native": 1, "jit": 0, "none": 0}}},
        {"problem": ""},
        {"sections": {".nv_fatbin": 0}},
        {"new": 1},
    ],
)
def test_the_schema_is_strict(found: tuple[Inspected, ...], wrong: dict[str, object]) -> None:
    said = json.loads(json.dumps(document([("here", found)])))
    said["sources"][0]["libraries"][0].update(wrong)
    assert not schema("inspect").is_valid(said)


def test_every_cut_of_a_library_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "libcut.so"
    for size in range(0, len(MODERN), 7):
        path.write_bytes(MODERN[:size])
        (found,) = inspect([("libcut.so", path)])
        assert found.problem, size
        assert "cannot be read" in table([("here", [found])])


def test_the_page_needs_nothing_but_itself(found: tuple[Inspected, ...], loader: FileSystemLoader) -> None:
    text = page([("here", found), ("made", [PROVIDER, OWN])], loader)
    made = Page(text)
    foreign = {"script", "link", "img", "iframe", "object", "form"}
    assert {one.tag for one in made.elements}.isdisjoint(foreign)
    assert all(target.startswith("#source-") for target in made.attributes("href"))
    assert made.attributes("src") == []
    assert not {word for word in ("url(", "@import") if word in text}
    assert "default-src 'none'" in text


def test_every_cell_of_the_page_is_marked_coloured_and_counted(loader: FileSystemLoader) -> None:
    made = Page(page([("made", [PROVIDER])], loader))
    counted = "183 of 184 containers native, 1 with nothing that runs."
    assert [one[:3] for one in made.texts("title") if one.endswith(counted)] == ["7.5"]
    colours = [one.attributes["class"] for one in made.elements if one.tag == "rect"]
    letters = {"N": "native", "j": "jit", "~": "partial", ".": "none"}
    cells = [colour for colour in colours if colour != "line"]
    assert cells == [letters[letter] for letter in "Nj~." + 2 * "...NN.N.~NN.NNjjjjj"]
    (text,) = made.texts("html")
    assert "Runs natively on Pascal (6.0, 6.1), Volta (7.0), " in text
    assert "libprovider.so: for 7.5, 1 of 184 containers has nothing that runs." in text


def test_the_page_has_an_overview_of_several_sources_only(loader: FileSystemLoader) -> None:
    one = Page(page([("first", [PROVIDER])], loader))
    two = Page(page([("first", [PROVIDER]), ("second", [PLAIN])], loader))
    assert "Overview" not in one.texts("html")[0]
    assert "Overview" in two.texts("html")[0]
    assert two.attributes("href") == ["#source-1", "#source-2"]
    assert {"source-1", "source-2"} <= set(two.attributes("id"))


def test_no_name_in_a_file_becomes_part_of_the_page(tmp_path: Path, loader: FileSystemLoader) -> None:
    evil = elf({".nv_fatbin": sass(80), EVIL: sass(80)}, soname=EVIL, needed=[EVIL])
    (tmp_path / "lib.so").write_bytes(evil)
    items = inspect([(EVIL, tmp_path / "lib.so"), ("b" + EVIL, tmp_path / "lib.so")])
    assert items[0].soname == EVIL
    text = page([(EVIL, [*items, Inspected(name=EVIL, problem=EVIL)]), ("other", [PLAIN])], loader)
    made = Page(text)
    assert {one.tag for one in made.elements}.isdisjoint({"script", "img"})
    assert made.attributes("onerror") == []
    assert "alert(1)" in made.texts("html")[0]
    assert "49" not in made.texts("html")[0]


def test_the_page_holds_names_that_are_no_text(loader: FileSystemLoader) -> None:
    """Python decodes a file name of the wrong encoding to surrogates, for which UTF-8 has no bytes."""
    text = page([("\udcff.whl", [Inspected(name="lib\udcff.so")])], loader)
    assert rb"lib\udcff.so" in text.encode()


def test_each_of_five_hundred_libraries_has_its_row_and_note() -> None:
    many = [Inspected(name=f"lib/lib{place}.so", coverage=PROVIDER.coverage) for place in range(500)]
    shown = table([("all", many)])
    assert sum(line.startswith("lib") and line.split()[-1] == "184" for line in shown.splitlines()) == 500
    assert shown.count("containers has nothing that runs") == 500


def test_a_link_that_leads_to_no_file_is_a_coded_problem(tmp_path: Path, told: Told) -> None:
    targets = {"liba.so": "gone\n.so", "libb.so": "/dev/zero", "libc.so": "libc.so", "libd.so": "."}
    for name, target in targets.items():
        (tmp_path / name).symlink_to(target)
    told("\n".join(item.problem for item in inspect((name, tmp_path / name) for name in targets)))
