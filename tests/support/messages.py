"""The catalogue of messages that users see: a page for each folder of tests, which a person reads.

A test asserts an error's class and code itself and gives the text to ``told``. ``--messages`` writes the
pages anew from the tests that run, in one process; the diff of the pages is what a reviewer reads.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.support import ROOT

PAGES = ROOT / "tests/golden/messages"
_HEAD = """\
# Messages of {folder}

`.venv/bin/python -m pytest {folder} --messages` writes this page. `<folder>` is a test's own folder.
"""

Told = Callable[[object], None]
"""The fixture ``told``: it compares a text with the catalogue."""

Kind = TypeVar("Kind", bound=Exception)


class Refused(Protocol):
    """The fixture ``refused``: code in its context raises this error, which goes to the catalogue."""

    def __call__(self, kind: type[Kind], /) -> AbstractContextManager[pytest.ExceptionInfo[Kind]]: ...


Entries = dict[tuple[str, str], list[str]]
"""The messages by names of module and test, with its parameters, in the order of the test."""


def page_of(module: Path) -> Path:
    return PAGES / f"{'.'.join(module.relative_to(ROOT / 'tests').parent.parts)}.md"


def plain(text: str, folder: Path) -> str:
    """Return the text without what differs from run to run: folders, and ports of loopback servers."""
    for place, name in ((str(folder), "<folder>"), (str(ROOT), "<repository>")):
        text = text.replace(place, name)
    text = re.sub(rf"{re.escape(str(Path.home()))}(?![\w.-])", "~", text)  # not in <folder>/rootfs
    return re.sub(r"(127\.0\.0\.1|localhost|\[::1\]):\d+", r"\1:<port>", text)


def read(page: Path) -> Entries:
    """Return the entries of a page; none if there is no page."""
    entries: Entries = defaultdict(list)
    module = test = ""
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if line.startswith("## "):
            module = line[3:]
        elif line.startswith("### "):
            test = line[4:]
        elif line == ">>>":
            entries[module, test].append("")
        elif line.startswith(">"):
            said = entries[module, test]
            said[-1] += f"{line[2:]}\n"
    return {key: [text.removesuffix("\n") for text in said] for key, said in entries.items()}


def write(page: Path, seen: Entries) -> None:
    """Write the page: its entries with those that were seen, without those of tests that are gone."""
    folder = ROOT / "tests" / page.stem.replace(".", os.sep)
    entries = {key: said for key, said in {**read(page), **seen}.items() if _exists(folder, *key)}
    lines = [_HEAD.format(folder=folder.relative_to(ROOT))]
    last = ""
    for (module, test), said in sorted(entries.items()):
        if module != last:
            lines.append(f"## {module}\n")
            last = module
        lines.append(f"### {test}\n")
        lines.extend(
            "\n".join([">>>", *(f"> {line}".rstrip() for line in message.split("\n"))]) + "\n"
            for message in said
        )
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join(lines), encoding="utf-8")


def _exists(folder: Path, module: str, test: str) -> bool:
    path = folder / module
    return path.exists() and f"def {test.partition('[')[0]}(" in path.read_text(encoding="utf-8")
