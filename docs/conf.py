"""Sphinx's configuration of the site, which ``./run docs --site`` makes of README and docs.

Its navigation is README's doors: the pages that each one names, in that order. Its search is ``search.js``.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

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
    if error is None:
        sections = [section for page in sorted(app.env.found_docs) for section in sections_of(app, page)]
        script = f"Search.sections = {json.dumps(sections)};"
        (Path(app.outdir) / "_static/sections.js").write_text(script, encoding="utf-8")


def sections_of(app: Sphinx, page: str) -> Iterator[dict[str, str]]:
    of = app.env.titles[page].astext()
    for section in app.env.get_doctree(page).findall(nodes.section):
        if NOT_FOUND in section["ids"]:
            continue
        title, *parts = section.children
        own = (part for part in parts if not isinstance(part, nodes.section))
        text = " ".join(word.astext() for part in own for word in part.findall(nodes.Text))
        yield {"page": page, "of": of, "id": section["ids"][0], "title": title.astext(), "text": text}


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
    app.connect("build-finished", add_sections)
