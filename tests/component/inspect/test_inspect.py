"""Tests of inspect: the GPUs that libraries' code runs on as a table, JSON and a page, also for
damaged files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.binary.library import Inspected
from builder.contents.supported_gpus import InspectedSource
from builder.inspect import reading as stage
from builder.inspect.command import page as page_of
from builder.inspect.reading import inspect
from builder.inspect.report.heatmap import heat_maps
from builder.inspect.report.heatmap import text as text_of
from tests.support.factories.binaries import BLACKWELL, LTOIR, PTX, SASS, container, elf, image, sass
from tests.support.factories.libraries import BROKEN, IDLE, OWN, PLAIN, PROVIDER
from tests.support.html_page import TEMPLATES, Page
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

RUNS = ("native", "jit", "partial")


def table(label: str, libraries: Sequence[Inspected]) -> str:
    return text_of(heat_maps([InspectedSource(label, libraries)]))


def page(**named: Sequence[Inspected]) -> str:
    sources = [InspectedSource(label, libraries) for label, libraries in named.items()]
    return page_of(heat_maps(sources), TEMPLATES)


def document(**named: Sequence[Inspected]) -> dict[str, Any]:
    """Return the JSON form of sources by their labels, as a reader of the text gets it."""
    said = stage.document([InspectedSource(label, libraries) for label, libraries in named.items()])
    return dict(json.loads(json.dumps(said)))


@pytest.fixture
def found(tmp_path: Path) -> tuple[Inspected, ...]:
    """Inspect libraries of every kind."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return inspect((name, tmp_path / name) for name in FILES)


def test_the_table_shows_each_library(found: tuple[Inspected, ...], told: Told) -> None:
    told(table("here", found))


def test_json_is_as_its_schema_says(found: tuple[Inspected, ...]) -> None:
    said = document(here=found, empty=(), plain=[PLAIN], made=[PROVIDER, OWN, IDLE, BROKEN])
    schema("inspect").validate(said)
    assert [source["source"] for source in said["sources"]] == ["here", "empty", "plain", "made"]
    assert said["sources"][1]["capabilities"] == said["sources"][2]["capabilities"] == {}
    assert said["sources"][3]["capabilities"]["7.5"] == {**SURE, "support": "partial"}


def test_json_has_what_was_counted(found: tuple[Inspected, ...], told: Told) -> None:
    (source,) = document(here=found)["sources"]
    for entry in source["libraries"]:
        cells = entry["capabilities"].items()
        runs = {how: " ".join(gpu for gpu, cell in cells if cell["support"] == how) for how in RUNS}
        told(json.dumps({**entry, "capabilities": runs}, indent=1))
    part = source["libraries"][1]
    counts = {"native": 1, "jit": 0, "none": 1}
    assert (part["name"], part["capabilities"]["7.5"]) == (
        "libpart.so",
        {**SURE, **counts, "support": "partial"},
    )


def test_every_cell_of_the_page_is_marked_coloured_and_counted() -> None:
    made = Page(page(made=[PROVIDER]))
    counted = "183 of 184 containers native, 1 with nothing that runs."
    assert [one[:3] for one in made.attributes("title") if one.endswith(counted)] == ["7.5"]
    cells = [(one.text, one.attributes["class"].split()[0]) for one in made.elements if one.tag == "i"]
    letters = {"N": "native", "j": "jit", "~": "partial", ".": "none"}
    marks = ["N", "j", "~", ".", "N?", *2 * "...NN.N.~NN.NNjjjjj"]
    assert cells == [(mark, letters.get(mark, "none")) for mark in marks]
    (text,) = made.texts("html")
    assert "Runs natively on Pascal (6.0, 6.1), Volta (7.0), " in text
    assert "libprovider.so: for 7.5, 1 of 184 containers has nothing that runs." in text


def test_the_page_has_an_overview_of_several_sources_only() -> None:
    one = Page(page(first=[PROVIDER]))
    two = Page(page(first=[PROVIDER], second=[PLAIN]))
    assert "Overview" not in one.texts("html")[0]
    assert "Overview" in two.texts("html")[0]
    assert two.attributes("href") == ["#source-1", "#source-2"]
    assert {"source-1", "source-2"} <= set(two.attributes("id"))


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    """Python decodes a file name of the wrong encoding to surrogates, for which UTF-8 has no bytes."""
    evil = elf({".nv_fatbin": sass(80), EVIL: sass(80)}, soname=EVIL, needed=[EVIL])
    (tmp_path / "lib.so").write_bytes(evil)
    items = inspect([(EVIL, tmp_path / "lib.so"), ("b" + EVIL, tmp_path / "lib.so")])
    assert items[0].soname == EVIL
    odd = [Inspected(name=EVIL, problem=EVIL), Inspected(name="lib\udcff.so")]
    text = page(**{EVIL: [*items, *odd], "\udcff.whl": [PROVIDER, OWN]})
    made = Page(text)
    foreign = {"script", "link", "img", "iframe", "object", "form"}
    assert {one.tag for one in made.elements}.isdisjoint(foreign)
    assert made.attributes("onerror") == made.attributes("src") == []
    assert all(target.startswith("#source-") for target in made.attributes("href"))
    assert "default-src 'none'" in text
    assert "alert(1)" in made.texts("html")[0]
    assert "{{ 7*7 }}" in made.texts("html")[0]
    assert rb"lib\udcff.so" in text.encode()


def test_a_link_that_leads_to_no_file_is_a_coded_problem(tmp_path: Path, told: Told) -> None:
    targets = {"liba.so": "gone\n.so", "libb.so": "/dev/zero", "libc.so": "libc.so", "libd.so": "."}
    for name, target in targets.items():
        (tmp_path / name).symlink_to(target)
    told("\n".join(item.problem for item in inspect((name, tmp_path / name) for name in targets)))
