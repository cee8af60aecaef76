"""Tests of rules by ORT version.

Expected values: ORT's CMake files and pull requests, read by hand; readelf and the wheels' containers.
"""

from pathlib import Path

import pytest

from builder.facts.ort import versions
from builder.facts.ort.versions import ReleaseRange, Rule, is_known, known_line, needs, opened_at_run_time
from tests.support.tables import table

(_, *VERSIONS), *_RULES = table("ort/rules.txt")

HOLDS = {name: marks for name, *marks in _RULES}


@pytest.mark.parametrize("name", HOLDS)
def test_which_versions_a_rule_holds_for(name: str) -> None:
    rule: Rule = getattr(versions, name)
    assert HOLDS[name] == ["x" if rule.holds(version) else "o" for version in VERSIONS]


def test_the_page_tells_every_rule_with_its_source_and_the_table_has_it(root: Path) -> None:
    page = " ".join((root / "docs/profiles.md").read_text(encoding="utf-8").split())
    rules = {name: value for name, value in vars(versions).items() if isinstance(value, Rule)}
    assert list(rules) == list(HOLDS)
    for rule in rules.values():
        assert rule.what in page
        assert rule.source in page


@pytest.mark.parametrize(("first", "last", "inside", "outside"), table("ort/spans.txt"))
def test_spans_hold_both_ends_and_patches(first: str, last: str, inside: str, outside: str) -> None:
    span = ReleaseRange(*(tuple(map(int, end.split("."))) if end else None for end in (first, last)))
    assert all(version in span for version in inside.split())
    assert not any(version in span for version in outside.split())


@pytest.mark.parametrize(("version", "line", "known"), table("ort/lines.txt"))
def test_the_nearest_known_line(version: str, line: str, known: str) -> None:
    assert (known_line(version), is_known(version)) == (line, known == "known")


@pytest.mark.parametrize(("version", "gcc"), [("1.20.1", "9"), ("1.21.0", "9"), ("1.22.0", "11.1")])
def test_oldest_tools(version: str, gcc: str) -> None:
    least = needs(version)
    assert (least.cuda, least.gcc, least.cmake) == ("11.4", gcc, "3.28")


NEEDED = {
    "1.23.2": {"cublasLt", "cublas", "curand", "cufft", "cudart", "cudnn"},
    "1.31.1": {"cublasLt", "cublas", "curand", "cudart"},
}
"""NVIDIA's libraries in NEEDED of the two official providers, by readelf; 1.21.0's has nvrtc too."""

IN_THE_BYTES = {"nvrtc"}
"""Further NVIDIA libraries whose names, with ``.so``, are in the bytes of 1.31.1's provider."""


def test_what_is_opened_is_what_the_newer_wheel_does_not_name() -> None:
    opened = opened_at_run_time("1.31.1")
    assert {name.removeprefix("lib").partition(".")[0] for name in opened} == (
        NEEDED["1.23.2"] - NEEDED["1.31.1"] | IN_THE_BYTES
    )
    assert opened_at_run_time("1.28.0") == opened
    assert opened_at_run_time("1.27.1") == ()
