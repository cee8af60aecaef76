"""Tests of adding a variant to variants.yaml: the changed file, and refusals."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from builder.build.own_programs import MODELS
from builder.config.load import load_project, with_variant
from builder.errors import CompatibilityError, ConfigError, ValidationError
from builder.facts.gpu.architectures import Arch, architectures
from builder.publish.wheels.package_wheels import WHEELS
from tests.unit.config.config_cases import SAMPLE


def added(old: str, new: str) -> list[str]:
    """Return the lines that a comparison shows on one side only."""
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


def test_an_entry_is_two_lines_behind_the_last_and_all_else_stays(root: Path) -> None:
    text = (root / "variants.yaml").read_text(encoding="utf-8")
    new, project = with_variant(text, "v.yaml", "tiny", architectures("120,75,86"))
    assert added(text, new) == [
        "+   tiny:",
        "+     sm: [120, 75, 86]",
        "+     generations: [Turing, Ampere, Blackwell]",
    ]
    assert list(project.variants)[-1] == "tiny"
    assert project.variants["tiny"].sm == (Arch(7, 5), Arch(8, 6), Arch(12, 0))
    assert load_project(new, "v.yaml") == project


def test_lines_comments_and_indents_are_the_files_own() -> None:
    section = yaml.safe_load(SAMPLE)["variants"]
    body = "".join(
        f"     {name}:\r\n         sm: {entry['sm']}\r\n         generations:\r\n"
        + "".join(f"         - {one}\r\n" for one in entry["generations"])
        for name, entry in section.items()
    )
    start = SAMPLE.index("variants:")
    end = SAMPLE.index("\n", SAMPLE.rindex("generations")) + 1
    head, tail = SAMPLE[:start].replace("\n", "\r\n"), SAMPLE[end:].replace("\n", "\r\n")
    comment = "         # of the last one\r\n\r\n# of what follows\r\n"
    text = f"{head}variants:\r\n{body}{comment}{tail}"
    new, _ = with_variant(text, "v.yaml", "tiny", [Arch(9, 0, "a")])
    entry = "     tiny:\r\n         sm: [90a]\r\n         generations: [Hopper]\r\n"
    where = text.index("\r\n# of what follows")
    assert new == text[:where] + entry + text[where:]


OF_VERBS = (MODELS, WHEELS, "atlas", "inspect", "rebuild")
"""Folders in ``dist`` that verbs make."""


@pytest.mark.parametrize(
    ("name", "sm", "kind"),
    [
        *((name, "75", ValidationError) for name in ("legacy", "cpu", "Tiny", "a: b", *OF_VERBS)),
        ("tiny", "91", ValidationError),
        ("tiny", "88", CompatibilityError),
    ],
)
def test_what_the_file_would_be_refused_for_is_refused(
    root: Path, told: Callable[[object], None], name: str, sm: str, kind: type[ConfigError]
) -> None:
    text = (root / "variants.yaml").read_text(encoding="utf-8")
    with pytest.raises(kind) as caught:
        with_variant(text, "v.yaml", name, architectures(sm))
    told(caught.value)


def test_a_file_in_one_line_is_left_to_its_author(root: Path) -> None:
    text = (root / "variants.yaml").read_text(encoding="utf-8")
    section = text[text.index("variants:\n") : text.index("providers:")]
    flow = "variants: {tiny: {sm: [75], generations: [Turing]}}\n"
    with pytest.raises(ValidationError, match="are not written with each key on its own line"):
        with_variant(text.replace(section, flow), "v.yaml", "other", [Arch(8, 6)])
