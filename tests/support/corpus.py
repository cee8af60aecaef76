"""Reader of ``tests/corpus.txt``, a list of widely used wheels."""

from __future__ import annotations

from dataclasses import dataclass

from builder.config.inputs import Pin
from tests.support import ROOT

CORPUS = ROOT / "tests" / "corpus.txt"


@dataclass(frozen=True)
class ListedWheel:
    """A wheel that a line of ``tests/corpus.txt`` names."""

    name: str
    version: str
    pin: Pin

    @classmethod
    def parse(cls, text: str) -> ListedWheel:
        """Read a line ``name version filename sha256``. Raises ``ValueError`` for any other text."""
        name, release, filename, sha256 = text.split()
        return cls(name, release, Pin(filename=filename, sha256=sha256))


def corpus() -> tuple[ListedWheel, ...]:
    """Return the wheels of ``tests/corpus.txt``, in its order."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return tuple(ListedWheel.parse(line) for line in lines if not line.startswith("#"))
