"""Reader of the tables below ``tests/data``, most of them copied from somebody else's documents."""

import re

from tests.support import ROOT


def table(name: str) -> list[list[str]]:
    """Return the cells of each row of ``tests/data/NAME``; a cell ``-`` is an empty text.

    Two blanks or more stand between cells, and ``#`` begins a comment.
    """
    lines = (ROOT / "tests/data" / name).read_text(encoding="utf-8").splitlines()
    rows = [re.sub(r"(^|  +)#.*", "", line).strip() for line in lines]
    return [["" if cell == "-" else cell for cell in re.split(r"  +", row)] for row in rows if row]
