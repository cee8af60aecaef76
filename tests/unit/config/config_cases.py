"""A small, valid ``variants.yaml`` for tests, changes that break it, and the messages that users read.

A case of ``tests/data/config/*-messages.txt`` is a block of lines: the error's class, ``- old`` and ``+ new``
text (``\\n``, ``\\t`` and ``\\a`` escaped), and, indented, every line of the message without the file's name.
"""

from dataclasses import dataclass

import pytest

from builder.config.load import load_project
from builder.errors import ConfigError
from tests.support import ROOT
from tests.support.tables import data_text

DATA = ROOT / "tests" / "data" / "config"

SAMPLE = (DATA / "sample.yaml").read_text(encoding="utf-8")

ZEROS = "0" * 64

LOCK_TEXT = data_text("config/sample.lock")

PATCHES = "patches: [b.patch, ours/a.patch]\n"
"""A key that both bases may have and the sample's bases lack."""

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\a": "\a"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One change that breaks a file, and the error that follows."""

    kind: str
    old: str
    new: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return self.lines[0][:70]


def read_cases(name: str) -> list[Case]:
    """Return the cases of one file of ``tests/data/config``."""
    blocks = (DATA / name).read_text(encoding="utf-8").strip("\n").split("\n\n")
    return [_case(*block.split("\n")) for block in blocks]


def changed(*changes: tuple[str, str], text: str = SAMPLE) -> str:
    """Return ``text`` with each old text, which must be in it, replaced once."""
    for old, new in changes:
        assert old in text, f"{old!r} is not in the text"
        text = text.replace(old, new, 1)
    return text


def error_of(text: str) -> tuple[type[ConfigError], list[str]]:
    """Return the class and the lines of the error raised for ``text``, without the leading file name."""
    with pytest.raises(ConfigError) as caught:
        load_project(text, "v.yaml")
    return type(caught.value), [problem.removeprefix("v.yaml:") for problem in caught.value.problems]


def _case(kind: str, old: str, new: str, *lines: str) -> Case:
    assert (old[0], new[0], {line[:2] for line in lines}) == ("-", "+", {"  "})
    return Case(kind=kind, old=_plain(old[2:]), new=_plain(new[2:]), lines=tuple(line[2:] for line in lines))


def _plain(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
