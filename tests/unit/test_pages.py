"""Tests of README and docs: generated parts are up to date, links lead to pages, and the first
screen is short."""

import json
import re
from pathlib import Path

import pytest

from builder.build.verbs.pages import FILES, PARTS, pages, rendered
from builder.errors import BuilderError, ConfigError
from builder.finding import Code
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter

PAGES = pages(ROOT)

LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")

CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)

README_WORDS = 900
"""Largest number of words in README, with all that is in its tables, commands and samples."""

DOCS_WORDS = 40_000
"""Largest number of words of all pages, without those and those parts that a command writes."""

FIRST_SCREEN = 150
"""Largest number of words on README's first screen: all that is read, commands and the picture's text too."""


def wiring(root: Path = ROOT) -> Wiring:
    return Wiring(root, reporter=FakeReporter())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_made_parts_are_as_made(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert rendered(text, wiring()) == text, "./run docs"
    assert text.count("<!-- ./run docs: ") == text.count("<!-- end -->")


@pytest.mark.parametrize("name", FILES)
def test_made_files_are_as_made(name: str) -> None:
    assert FILES[name](wiring()) == (ROOT / name).read_text(encoding="utf-8"), "./run docs"


def test_every_stored_result_is_shown_and_every_generator_used() -> None:
    """A result or generator without a page would be checked by nothing."""
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    named = re.findall(r"<!-- \./run docs: (\S+)(?: (\S+))? -->", text)
    assert {what for what, _ in named} == set(PARTS)
    results = {path.stem for path in (ROOT / "docs/results").iterdir()}
    assert results == {name for what, name in named if what in {"result", "compared"}}
    index = (ROOT / "docs/performance.md").read_text(encoding="utf-8").partition("## All measurements")[2]
    rows = re.findall(r"^\| (`.+`) \| \[", index, re.MULTILINE)
    assert sorted(results) == sorted(re.findall(r"`([^`]+)`", " ".join(rows)))


def test_a_page_that_was_edited_by_hand_differs() -> None:
    text = "a\n<!-- ./run docs: variants -->\n| `legacy` | sm_99 |\n<!-- end -->\nb\n"
    made = rendered(text, wiring())
    assert "| `legacy` | sm_50 52 60 61 70 | Maxwell, Pascal, Volta |\n" in made
    assert "sm_99" not in made
    assert made.startswith("a\n")
    assert made.endswith("<!-- end -->\nb\n")


WHOLE = r"Of 1 parts that begin \(<!-- .* -->\) 0 are whole"

RESULT = "<!-- ./run docs: result one -->\n<!-- end -->\n"


@pytest.mark.parametrize(
    ("text", "content", "said"),
    [
        (RESULT.replace("result one", "tables"), b"", "names nothing that makes a part"),
        (RESULT.replace("<!-- end -->", "x"), b"", WHOLE),
        (RESULT.replace("\n", ""), b"", WHOLE),
        (RESULT.replace("one", "../../README"), b"", WHOLE),
        (RESULT, b"no colon\n\nx\n", "does not begin with the lines command, date"),
        (RESULT, b"\xff", "is no UTF-8 text"),
    ],
)
def test_a_part_that_cannot_be_made_is_told(tmp_path: Path, text: str, content: bytes, said: str) -> None:
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/one.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        rendered(text, wiring(tmp_path))


def test_each_exit_code_stands_in_the_reference() -> None:
    codes = {kind.exit_code for kind in BuilderError.__subclasses__() if "exit_code" in vars(kind)}
    table, _, client = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8").partition("client")
    assert codes == set(range(2, 13))
    assert all(f"\n| {code} | " in table for code in {1, *codes, 130})
    assert "\n| 141 | " in client


@pytest.mark.parametrize(
    ("page", "parts"),
    [
        (
            "verbs",
            ["### build", "`--variant`", "./run lock --missing", "## Publish packages"],
        ),
        ("client", ["## self-update", "`--trust-unsigned`", "ORTPACKS_FORCE_CC"]),
        ("variants", ["| `sm` | ", "| `budget` | ", "| `profile` | "]),
        ("codes", ["| `A001` | ", "| `V0", "| `R009` | ", "| D001 | error | ", "| `C0"]),
    ],
)
def test_the_reference_has_what_the_code_has(page: str, parts: list[str]) -> None:
    text = (ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    assert [part for part in parts if part not in text] == []


def test_the_reference_has_a_row_for_every_code() -> None:
    text = (ROOT / "docs/reference/codes.md").read_text(encoding="utf-8")
    advice = json.loads((ROOT / "builder/client/doctor/advice.json").read_text(encoding="utf-8"))
    assert re.findall(r"^\| (D\d{3}) \| \w+ \| .+ \| .+ \| .+ \|$", text, re.MULTILINE) == sorted(advice)
    assert re.findall(r"^\| `([A-Z]\d{3})` \| .+ \|$", text, re.MULTILINE) == [code.name for code in Code]


VARIABLE = re.compile(r"ORTPACKS_[A-Z_]*[A-Z]\b(?![_…])")


def test_the_reference_has_every_variable() -> None:
    """That a page names, or a program by a string or in ``process.env``; tests have two of their own."""
    named = {
        name for page in (ROOT / "docs").glob("*.md") for name in VARIABLE.findall(page.read_text("utf-8"))
    }
    for room in ("builder", "runtime", "service", "npm"):
        for file in (file for file in (ROOT / room).rglob("*") if file.suffix in {".py", ".js"}):
            named.update(re.findall(rf"[\"'.]({VARIABLE.pattern})", file.read_text("utf-8")))
    there = set(VARIABLE.findall((ROOT / "docs/reference/environment.md").read_text("utf-8")))
    assert {name for name in named if "_TEST_" not in name} == there - {"ORTPACKS_DOWNLOADS"}


def anchors(page: str) -> set[str]:
    """Return the ids that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    broken = []
    for target in (found["target"] for found in LINK.finditer(CODE.sub("", text))):
        file, _, anchor = target.partition("#")
        place = (path.parent / file) if file else path
        if "://" in target:
            continue
        if not place.exists() or (anchor and anchor not in anchors(place.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


README = (ROOT / "README.md").read_text(encoding="utf-8")


def words(text: str) -> int:
    seen = re.sub(r"<!--.*?-->|\]\([^)]*\)|^```\w*", " ", text, flags=re.MULTILINE)
    return sum(bool(re.search(r"\w", word)) for word in re.split(r"[\s|]+", seen))


def test_every_page_of_docs_is_named_in_readme() -> None:
    """Its doors lead to each reader's pages."""
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == set(
        re.findall(r"docs/([\w-]+\.md)", README)
    )


def test_readme_is_read_in_minutes_and_its_first_screen_is_one() -> None:
    first, _, _ = README.partition("\n## ")
    assert (words(first) <= FIRST_SCREEN, words(README) <= README_WORDS) == (True, True)
    for needed in ("./run build --variant modern --mixed", "./run test", "docs/gpus.svg", "on a real GPU"):
        assert needed in first


def test_what_is_written_by_hand_keeps_its_budget() -> None:
    made = {ROOT / "docs/cards.md", ROOT / "docs/benchmark.md", *(ROOT / name for name in FILES)}
    texts = [path.read_text(encoding="utf-8") for path in PAGES if path not in made]
    by_hand = [re.sub(r"<!-- \./run docs: .*?<!-- end -->", "", text, flags=re.DOTALL) for text in texts]
    assert 30_000 < sum(map(words, by_hand)) <= DOCS_WORDS


def test_the_picture_promises_what_virtual_cards_loaded() -> None:
    """docs/cards.md is written by ``verify`` from packages; the picture is made from ``variants.yaml``."""
    grid = (ROOT / "docs/cards.md").read_text(encoding="utf-8")
    loaded = {
        (capability, name)
        for name, rows in re.findall(
            r"^## ortpacks-([a-z]+)-.*?\n(.*?)(?=^## |\Z)", grid, re.DOTALL | re.MULTILINE
        )
        for capability in re.findall(r"^\|[^|]*\| ([\d.]+) \|[^|]*\|[^|]*\| native \|", rows, re.MULTILINE)
    }
    picture = (ROOT / "docs/gpus.svg").read_text(encoding="utf-8")
    drawn = re.findall(r"([\d.]+): official (\w+), (\w+)\.", picture)
    assert {(capability, name) for capability, _, name in drawn} <= loaded
    assert [capability for capability, official, _ in drawn if official == "none"] == ["5.0", "5.2"]
