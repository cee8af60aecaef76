"""Readers of the texts and tables below ``tests/data``, most of them copied from others' documents."""

import re

from tests.support import ROOT


def data_text(name: str) -> str:
    """Return the text of ``tests/data/NAME``."""
    return (ROOT / "tests/data" / name).read_text(encoding="utf-8")


def table(name: str) -> list[list[str]]:
    """Return the cells of each row of ``tests/data/NAME``; a cell ``-`` is an empty text.

    Two blanks or more stand between cells, and ``#`` begins a comment.
    """
    rows = [re.sub(r"(^|  +)#.*", "", line).strip() for line in data_text(name).splitlines()]
    return [["" if cell == "-" else cell for cell in re.split(r"  +", row)] for row in rows if row]
