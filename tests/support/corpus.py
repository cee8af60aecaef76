"""The list ``tests/corpus.txt``: wheels that people use."""

from __future__ import annotations

from dataclasses import dataclass

from builder.project.inputs import Pin
from tests.support import ROOT

CORPUS = ROOT / "tests" / "corpus.txt"


@dataclass(frozen=True)
class ListedWheel:
    """A line of the list."""

    name: str
    version: str
    pin: Pin

    @classmethod
    def parse(cls, text: str) -> ListedWheel:
        """Read ``name version filename sha256``; ``ValueError`` for anything else."""
        name, release, filename, sha256 = text.split()
        return cls(name, release, Pin(filename=filename, sha256=sha256))


def corpus() -> tuple[ListedWheel, ...]:
    """All of the list."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return tuple(ListedWheel.parse(line) for line in lines if not line.startswith("#"))
