"""Tests of the exact message for each mistake in ``variants.yaml``."""

import re
from pathlib import Path

import pytest

from builder.build.own_programs import MODELS
from builder.errors import CompatibilityError, ConfigError, ParseError, SchemaError, ValidationError
from builder.publish.wheels.package_wheels import WHEELS
from tests.support.messages import Told
from tests.unit.config.config_cases import SAMPLE, Case, changed, error_of, read_cases

CASES = read_cases("variants-messages.txt")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_mistake_has_its_message(case: Case) -> None:
    kind, lines = error_of(changed((case.old, case.new)))
    assert (kind.__name__, lines) == (case.kind, list(case.lines))


def test_the_messages_in_the_guide_are_those_that_are_printed(root: Path) -> None:
    guide = (root / "docs" / "variants.md").read_text(encoding="utf-8")
    shown = re.findall(r"^variants\.yaml:(.*)$", guide, re.MULTILINE)
    printed = {line for case in CASES for line in case.lines}
    assert len(shown) > 10
    assert [line for line in shown if line not in printed] == []


HEAD, _, REST = SAMPLE.partition("variants:\n")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((SchemaError, text) for text in ("", "# nothing but this\n", "{}", "- 1\n- 2\n", "hello")),
        (SchemaError, changed(("variants:\n", "variants:\n  <name>: 1\n")) + "<name>: 1\n"),
        (ValidationError, changed(("format: 1", "format: 2"), ("bundle:", "bundles:"))),
        (SchemaError, changed(("1000000", "9" * 5000))),
        (CompatibilityError, changed(('"12.9"', '"13.0"'), ("==12.9.79", "==13.0.48"))),
        (ValidationError, f"{HEAD}variants: {{}}\nbundle:{REST.partition('bundle:')[2]}"),
    ],
    ids=[
        *("empty", "a comment", "no key", "a list", "a word", "a key in angle brackets", "another format"),
        *("a long value", "what the libraries dropped", "no variant"),
    ],
)
def test_what_the_cases_cannot_hold_has_its_message(kind: type[ConfigError], text: str, told: Told) -> None:
    """Defect: a key that began with ``<`` was lost from the place, and at the top ended in a traceback."""
    said, lines = error_of(text)
    assert said is kind
    told("\n".join(lines))


@pytest.mark.parametrize("name", [MODELS, WHEELS, "atlas", "inspect", "rebuild"])
def test_no_variant_has_the_name_of_a_folder_that_verbs_make_in_dist(name: str) -> None:
    kind, [line] = error_of(changed(("  legacy:", f"  {name}:")))
    assert kind is ValidationError
    assert f"variants.{name}: not a variant's name" in line


@pytest.mark.parametrize(
    ("old", "new"),
    [("version: 1.23.2", "version: 1.{}.2"), ("cublas-cu12==12", "cublas-cu12=={}"), ('"12.9"', '"{}.9"')],
)
def test_a_number_in_a_version_has_nine_digits_at_most(old: str, new: str) -> None:
    """Python converts no text of more than 4,300 digits."""
    kind, [line] = error_of(changed((old, new.format("9" * 5000))))
    assert (kind, ": not a " in line) == (ValidationError, True)


def test_aliases_are_refused_before_they_unfold() -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 60)]
    kind, lines = error_of("a0: &a0 [x, x]\n" + "\n".join(levels))
    assert kind is SchemaError
    assert len(lines) == 60 + 59 * 9  # each anchor and each alias


def test_problems_of_all_kinds_are_told_in_one_go_in_the_files_order() -> None:
    text = changed(
        ("nvrtc:", "nvrct:"), ('"12.9"', '"13.0"'), ("90a", "95"), ("budget: 1000000", "budget: -1")
    )
    kind, lines = error_of(text)
    assert kind is SchemaError
    assert [line.partition(": ")[0] for line in lines] == ["5", "6", "10", "54", "57", "61"]


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ([("models:", "models"), ("preset:", "prset:"), ("90a", "95"), ('"12.9"', '"13.0"')], ParseError),
        ([("preset:", "prset:"), ("90a", "95"), ('"12.9"', '"13.0"')], SchemaError),
        ([("90a", "95"), ('"12.9"', '"13.0"')], ValidationError),
        ([('"12.9"', '"13.0"')], CompatibilityError),
    ],
)
def test_the_most_basic_problem_is_the_class(broken: list[tuple[str, str]], kind: type[ConfigError]) -> None:
    said, lines = error_of(changed(*broken))
    assert said is kind
    assert len(lines) == 1 or kind is not ParseError, "a syntax error is told alone"


def test_windows_line_ends_count_as_one_line() -> None:
    [line] = error_of(changed(("90a", "91")).replace("\n", "\r\n"))[1]
    assert line.startswith("57: variants.latest.sm[0]: ")


@pytest.mark.parametrize("password", ["swordfish", "sword/fish", "sword@fish", "sword#fish", "sword fish"])
@pytest.mark.parametrize("written", ['git: "{}"', '"{}": 1', '"git:{}": 1'])
def test_the_password_of_a_git_url_is_not_shown(password: str, written: str) -> None:
    """Also where the URL is a key, because the blank after the colon was forgotten."""
    url = f"https://ada:{password}@github.com/microsoft/onnxruntime@v1.23.2"
    old = "git: https://github.com/microsoft/onnxruntime@v1.23.2"
    said = "\n".join(error_of(changed((old, written.format(url))))[1])
    assert "https://" in said
    assert "ada" not in said
    assert "fish" not in said
