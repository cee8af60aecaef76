"""Tests that the loader returns values or raises a message for any changed file, and never a traceback."""

import json
from collections.abc import Callable, Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from builder.config.load import load_project, parse_lock
from builder.errors import ConfigError
from tests.support import ROOT

LINES = (ROOT / "variants.yaml").read_text(encoding="utf-8").splitlines(keepends=True)

LOCK = json.dumps(
    {"format": 1, "inputs": {"wheel:a==1": {"filename": "a.whl", "size": 1, "sha256": "0" * 64}}}, indent=2
)

SOUP = st.text(alphabet="{}[]:,-?&*!|>'\"%@` #\n\t\r\\~.<=0159abfnty\x85\u2028\ufeff", max_size=60)


def survives(text: str) -> None:
    for read in (load_project, parse_lock):
        problems = problems_of(read, text)
        assert all(line.startswith("some file:") and "\n" not in line for line in problems)


def problems_of(read: Callable[[str, str], object], text: str) -> Sequence[str]:
    try:
        read(text, "some file")
    except ConfigError as error:
        return error.problems or ["an error that says nothing"]
    return ()


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw the repository's file with up to four lines dropped, doubled, moved, indented or overwritten."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["drop", "double", "move", "indent", "value", "soup"]))
        line = lines.pop(at)
        key = line.partition(":")[0]
        changed = {
            "drop": "",
            "double": line + line,
            "move": "",
            "indent": f" {line}",
            "value": f"{key}: {draw(SOUP)}\n",
            "soup": f"{draw(SOUP)}\n",
        }
        lines.insert(at, changed[change])
        if change == "move":
            lines.insert(draw(st.integers(0, len(lines))), line)
    return "".join(lines)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(mutated())
def test_a_mutated_file_is_read_or_refused(text: str) -> None:
    survives(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(SOUP, st.text(), st.binary(max_size=200).map(lambda data: data.decode("latin-1"))))
@example("[" * 100_000)
@example('{"a":' * 50_000)
@example('"\\U00110000"')
@example('"\\xzz"')
@example("a: \ud800")
@example("%YAML 99999999999999999999.1\n--- a")
@example("&a [*a]")
@example("? {a: 1}\n: b")
@example("=: =")
@example("format: 1\n<<: *x")
@example("a: 0x" + "9" * 5000)
@example("a: 1_0:59:59.9")
@example("a: 2001-99-99")
@example('{"format": 1, "inputs": {"wheel:a==1": NaN}}')
@example('{"format": 1e999999999, "inputs": {}}')
@example("9" * 10_000)
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(text)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, len(LOCK)), st.integers(0, 20), SOUP)
def test_a_damaged_lock_is_read_or_refused(at: int, length: int, soup: str) -> None:
    problems = problems_of(parse_lock, LOCK[:at] + soup + LOCK[at + length :])
    assert all(line.startswith("some file:") and "\n" not in line for line in problems)
