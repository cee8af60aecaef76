"""This module adds an entry of three lines to the text of ``variants.yaml`` and changes no other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import yaml

from builder.config.project import load_project
from builder.errors import ValidationError
from builder.gpu.table import GENERATION_NUMBERS
from builder.project.variants import Project

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")

_NUMBER = re.compile(r"([0-9]{2,3})[af]?")


def with_variant(text: str, path: str, name: str, sm: Sequence[str]) -> tuple[str, Project]:
    """Return the text with an entry after the last variant's, and the project that the new text means.

    ``sm`` are the words of ``--sm``; the generations follow from them. Raises ``ValidationError`` for a name
    that is taken or for a file without a line for each key, and what ``load_project`` raises for the new
    text, with its lines.
    """
    before = load_project(text, path)
    if name in before.packages:
        raise ValidationError(f"{path}: a package is called {name} already", advice="Take another name.")
    after = _inserted(text, path, [f"{_yaml_word(name)}:", *_entry(sm)])
    project = load_project(after, f"{path} (not written)")
    if (
        replace(project, variants=before.variants) != before
        or len(project.variants) != len(before.variants) + 1
    ):
        raise _not_laid_out(path)
    return after, project


def _entry(sm: Sequence[str]) -> list[str]:
    numbers = {int(found[1]) for word in sm if (found := _NUMBER.fullmatch(word))}
    generations = [name for name, known in GENERATION_NUMBERS.items() if numbers.intersection(known)]
    return [
        f"sm: [{', '.join(map(_yaml_word, sm))}]",
        f"generations: [{', '.join(generations or GENERATION_NUMBERS)}]",
    ]


def _inserted(text: str, path: str, lines: Sequence[str]) -> str:
    """Return the text with ``lines`` as the last entry of ``variants``, indented like the other entries."""
    section = _section(text)
    if section is None or section.flow_style:
        raise _not_laid_out(path)
    key, entry = section.value[-1]
    column = key.start_mark.column
    inner = 2 * column if entry.flow_style else entry.value[0][0].start_mark.column
    whole = text.splitlines(keepends=True)
    at = _last_line(entry) + 1
    while at < len(whole) and re.match(rf" {{{column + 1},}}#", whole[at]):
        at += 1  # a comment of the last entry
    end = "\r\n" if whole[0].endswith("\r\n") else "\n"
    if not whole[at - 1].endswith("\n"):
        whole[at - 1] += end
    head, *keys = lines
    fresh = [f"{' ' * column}{head}{end}", *(f"{' ' * inner}{line}{end}" for line in keys)]
    return "".join([*whole[:at], *fresh, *whole[at:]])


def _section(text: str) -> yaml.MappingNode | None:
    root = yaml.compose(text, yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    found = next((value for key, value in pairs if key.value == "variants"), None)
    return found if isinstance(found, yaml.MappingNode) else None


def _last_line(node: yaml.Node) -> int:
    """Return the last line of a node's contents, counted from 0.

    A block node's end mark is after blank lines.
    """
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        return _last_line(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _last_line(node.value[-1])
    return int(node.end_mark.line)


def _yaml_word(word: str) -> str:
    """Return a word as YAML accepts it for a key or an item.

    Wrong words are reported when the text is read.
    """
    return word if _PLAIN.fullmatch(word) else json.dumps(word)


def _not_laid_out(path: str) -> ValidationError:
    return ValidationError(
        f"{path}: its variants are not written with each key on its own line, so nothing is added",
        advice="Write the entry by hand: name, sm, generations (docs/variants.md).",
    )
