"""Sphinx's configuration of the site, which ``./run docs --site`` makes of README and docs.

Its navigation is README's doors: the pages that each one names, in that order. Its search is ``search.js``.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

project = html_title = "ortpacks"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/decisions/*.md", "docs/reference/*.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_missing"]  # links to files that are no pages; tests follow every link
html_theme = "furo"
html_static_path = html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search.js"))
html_show_copyright = html_copy_source = html_show_sphinx = False
smartquotes = False  # it makes a dash of the two of a flag

DOOR = re.compile(r"^\*\*(?P<title>I [^*]+)\.\*\*.*?(?=\n\n)", re.DOTALL | re.MULTILINE)

PAGE = re.compile(r"\]\(((?:docs/)?[\w-]+)(?:\.md)?(?:#[\w-]+)?\)")

TREE = "\n```{{toctree}}\n:caption: {}\n:hidden:\n:glob:\n\n{}\n```\n"

NOT_FOUND = "the-site-s-search"
"""The id of the section that has questions and no answers."""

ASKED = Path(__file__).with_name("asked.toml")

MESSAGES = Path(__file__).parents[1] / "builder/client/doctor/messages.json"

MESSAGES_IN = ("docs/reference/codes", "d-the-user-s-machine")
"""The section that explains the messages."""

FOLDERS = {"docs/reference", "docs/decisions"}


def add_navigation(_app: Sphinx, name: str, text: list[str]) -> None:
    if name != root_doc:
        return
    doors = {door["title"]: PAGE.findall(door[0]) for door in DOOR.finditer(text[0])}
    doors["More"] = [*PAGE.findall(text[0]), "CHANGELOG"]
    left = dict.fromkeys(page for pages in doors.values() for page in pages)
    for title, pages in doors.items():
        lines = [f"{page}/*" if page in FOLDERS else page for page in dict.fromkeys(pages) if page in left]
        text[0] += TREE.format(title, "\n".join(lines))
        left = {page: None for page in left if page not in pages}


def add_index(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def add_sections(app: Sphinx, error: Exception | None) -> None:
    if error is not None:
        return
    asked = tomllib.loads(ASKED.read_text(encoding="utf-8"))
    sections = [section for page in sorted(app.env.found_docs) for section in sections_of(app, page, asked)]
    left = [f"{page}#{name}" for page, names in asked.items() for name in names]
    if left:
        raise ExtensionError(f"{ASKED.name} has questions for sections that no page has: {', '.join(left)}")
    script = f"Search.sections = {json.dumps(sections)};"
    (Path(app.outdir) / "_static/sections.js").write_text(script, encoding="utf-8")


def sections_of(app: Sphinx, page: str, asked: dict[str, dict[str, str]]) -> Iterator[dict[str, object]]:
    """Yield the sections of ``page``, and take their questions from ``asked``."""
    of = app.env.titles[page].astext()
    for section in app.env.get_doctree(page).findall(nodes.section):
        name = section["ids"][0]
        if name == NOT_FOUND:
            continue
        title, *parts = section.children
        questions = [one for one in asked.get(page, {}).pop(name, "").split("; ") if one]
        texts = [text for part in parts if not isinstance(part, nodes.section) for text in passages(part)]
        if (page, name) == MESSAGES_IN:
            texts += messages()
        yield {
            "page": page, "of": of, "id": name, "title": title.astext(), "texts": texts, "asked": questions
        }  # fmt: skip


def passages(part: nodes.Node) -> Iterator[str]:
    """Yield the text of each row and item of ``part``, or of ``part`` itself where it has none."""
    rows = list(part.findall(lambda node: isinstance(node, nodes.row | nodes.list_item)))
    yield from filter(
        None, (" ".join(text.astext() for text in row.findall(nodes.Text)) for row in rows or [part])
    )


def messages() -> list[str]:
    """Return the error messages that ``doctor`` explains, which people search for."""
    table = json.loads(MESSAGES.read_text(encoding="utf-8"))
    cuda = [
        f"CUDA failure {row['number']} {row.get('text', '')} {' '.join(row['names'])}"
        for row in table["cuda"]
    ]
    return [
        *cuda,
        *(re.sub(r"\(\?P<\w+>|\\[a-zA-Z]|[^\w ./-]", " ", row["pattern"]) for row in table["messages"]),
    ]


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
    app.connect("build-finished", add_sections)
