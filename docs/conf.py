"""Sphinx's configuration of the site, which ``./run docs --site`` makes of README and docs.

Its navigation is README's doors: the pages that each one names, in that order.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

project = html_title = "ortpacks"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/decisions/*.md", "docs/reference/*.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_missing"]  # links to files that are no pages; tests follow every link
html_theme = "furo"
html_show_copyright = html_copy_source = html_show_sphinx = False

DOOR = re.compile(r"^\*\*(?P<title>I [^*]+)\.\*\*.*?(?=\n\n)", re.DOTALL | re.MULTILINE)

PAGE = re.compile(r"\]\(((?:docs/)?[\w-]+)(?:\.md)?(?:#[\w-]+)?\)")

TREE = "\n```{{toctree}}\n:caption: {}\n:hidden:\n:glob:\n\n{}\n```\n"

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


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
