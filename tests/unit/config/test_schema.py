"""Tests of the JSON Schemas for editors: they accept and refuse the same files as the loader."""

import json
import re
from pathlib import Path

import pytest
import yaml

from builder.config.load import load_project
from builder.errors import ConfigError
from builder.facts.gpu.table import GENERATION_NUMBERS, KNOWN_SM
from tests.support.schemas import schema
from tests.unit.config.config_cases import LOCK_TEXT, PATCHES, SAMPLE, Case, changed, read_cases


def test_the_schema_accepts_the_repositorys_file_and_the_sample(root: Path) -> None:
    variants = schema("variants")
    variants.validate(yaml.safe_load((root / "variants.yaml").read_text(encoding="utf-8")))
    variants.validate(yaml.safe_load(SAMPLE))
    patched = changed(
        ("    onnxruntime: 1.21.0\n", f"    onnxruntime: 1.21.0\n    {PATCHES}"),
        ("    onnxruntime: 1.23.2\n", f"    onnxruntime: 1.23.2\n    {PATCHES}"),
    )
    variants.validate(yaml.safe_load(patched))


NOTATION = (" not read.", "a key that is not text", "Keep one of the two", "(found 010)", "half a character")
"""Words of messages about how a file is written; a schema sees the values that YAML's own loader reads."""

MISTAKES = [
    (name, text, case)
    for name, text, cases in (
        ("variants", SAMPLE, read_cases("variants-messages.txt")),
        ("inputs", LOCK_TEXT, read_cases("lock-messages.txt")),
    )
    for case in cases
    if case.kind != "ParseError" and not any(words in case.lines[0] for words in NOTATION)
]


@pytest.mark.parametrize(("name", "text", "case"), MISTAKES, ids=[str(case) for *_, case in MISTAKES])
def test_the_schema_refuses_each_mistake(name: str, text: str, case: Case) -> None:
    values = yaml.safe_load(changed((case.old, case.new), text=text))
    assert schema(name).is_valid(values) == (case.kind == "CompatibilityError")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[g++-12]", "[]"),
        ("    toolkit:\n", "    patches: [/a.patch]\n    toolkit:\n"),
        ("60]", "90f]"),
        ("  coreml:", "  cuda:"),
        ("cpu: {platform: linux-x64, wheel: onnxruntime==1.23.2", "directml: {platform: win-x64"),
    ],
)
def test_what_the_schema_can_say_both_refuse(old: str, new: str) -> None:
    text = changed((old, new))
    assert not schema("variants").is_valid(yaml.safe_load(text))
    with pytest.raises(ConfigError):
        load_project(text, "v.yaml")


@pytest.mark.parametrize("arch", [*KNOWN_SM, "90a", "100a", "120f", "121f"])
def test_every_architecture_is_known_to_both(arch: int | str) -> None:
    number = int(str(arch).rstrip("af"))
    generation = next(name for name, numbers in GENERATION_NUMBERS.items() if number in numbers)
    text = changed(
        ("[90a, 89, 120]", f"[{arch}, 75]"), ("[Ada, Hopper, Blackwell]", f"[Turing, {generation}]")
    )
    text = text.replace("[Turing, Turing]", "[Turing]").replace("[75, 75]", "[75]")
    schema("variants").validate(yaml.safe_load(text))
    problems: tuple[str, ...] = ()
    try:
        load_project(text, "v.yaml")
    except ConfigError as error:  # sm_110 needs CUDA 13, and NVIDIA's libraries have no code for Jetsons
        problems = error.problems
    assert [problem for problem in problems if re.search(r"\bC0\d\d\b", problem) is None] == []


def test_the_lock_schema_accepts_the_repositorys_lock(root: Path) -> None:
    schema("inputs").validate(json.loads((root / "inputs.lock").read_text(encoding="utf-8")))
