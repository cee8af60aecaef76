"""Tests of rules by ORT version.

Expected values: ORT's CMake files and pull requests, read by hand; readelf and the wheels' containers.
"""

from pathlib import Path

import pytest

from builder.facts.ort import versions
from builder.facts.ort.versions import ReleaseRange, Rule, is_known, known_line, needs, opened_at_run_time

VERSIONS = [
    *("1.20.1", "1.21.0", "1.22.0", "1.23.0", "1.23.2", "1.26.0", "1.27.0", "1.27.1", "1.28.0", "1.40.0"),
]

HOLDS = {
    #                   1.20 21 22 23.0 23.2 26 27.0 27.1 28 40
    "REWRITES_ARCHES":  "  -  -  -   x    x   x   x    x   x  x",
    "REFUSES_FAMILIES": "  -  -  -   x    x   -   -    -   -  -",
    "HALF_IN_CONTRIB":  "  x  x  x   x    x   x   x    x   x  x",
    "SPLITS_UNITS":     "  -  -  -   -    -   -   x    x   x  x",
    "LLM_WITHOUT_120":  "  -  -  -   -    -   -   x    x   -  -",
    "OPENS_LIBRARIES":  "  -  -  -   -    -   -   -    -   x  x",
}  # fmt: skip
"""Versions for which each rule holds, from the release notes and pull requests that its source names."""


@pytest.mark.parametrize("name", HOLDS)
def test_which_versions_a_rule_holds_for(name: str) -> None:
    rule: Rule = getattr(versions, name)
    assert dict(zip(VERSIONS, HOLDS[name].split(), strict=True)) == {
        version: "x" if rule.holds(version) else "-" for version in VERSIONS
    }


def test_the_page_tells_every_rule_with_its_source_and_the_table_has_it(root: Path) -> None:
    page = " ".join((root / "docs/profiles.md").read_text(encoding="utf-8").split())
    rules = {name: value for name, value in vars(versions).items() if isinstance(value, Rule)}
    assert list(rules) == list(HOLDS)
    for rule in rules.values():
        assert rule.what in page
        assert rule.source in page


@pytest.mark.parametrize(
    ("first", "last", "inside", "outside"),
    [
        (None, (1, 27, 1), "1.20.0 1.27.0 1.27.1", "1.27.2 1.28.0"),
        ((1, 23), (1, 24), "1.23.0 1.24.9", "1.22.9 1.25.0"),
        ((1, 23, 1), None, "1.23.1 1.23.10 1.100.0 2.0.0", "1.23.0 1.9.0"),
        ((1, 9), (1, 10), "1.9.0 1.10.3", "1.8.0 1.11.0"),
    ],
)
def test_spans_hold_both_ends_and_every_patch_release(
    first: tuple[int, ...] | None, last: tuple[int, ...] | None, inside: str, outside: str
) -> None:
    span = ReleaseRange(first, last)
    assert all(version in span for version in inside.split())
    assert not any(version in span for version in outside.split())


@pytest.mark.parametrize(
    ("version", "line", "known"),
    [
        ("1.21.0", "1.21", True),
        ("1.23.2", "1.23", True),
        ("1.24.0", "1.23", False),
        ("1.20.1", "1.21", False),
        ("2.0.0", "1.23", False),
    ],
)
def test_the_nearest_known_line(version: str, line: str, known: bool) -> None:
    assert (known_line(version), is_known(version)) == (line, known)


@pytest.mark.parametrize(
    ("version", "gcc"), [("1.20.1", "9"), ("1.21.0", "9"), ("1.22.0", "11.1"), ("1.23.2", "11.1")]
)
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
