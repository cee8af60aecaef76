"""Tests of rules by ORT version.

Expected values: ORT's CMake files and pull requests, read by hand; readelf and the wheels' containers.
"""

from collections.abc import Callable

import pytest

from builder.contents.rules.dependencies import OPENED
from builder.facts.ort.known_rules import is_known, rules_for, standing_for
from tests.support.tables import table

(_, *VERSIONS), *_RULES = table("ort/rules.txt")

HOLDS = {name: marks for name, *marks in _RULES}

RULES: dict[str, Callable[[str], bool]] = {
    "REWRITES_ARCHES": lambda version: rules_for(version).rewriting.line is not None,
    "REFUSES_FAMILIES": lambda version: "f" in (rules_for(version).rewriting.refused or {}),
    "SPLITS_UNITS": lambda version: bool(rules_for(version).groups),
    "LLM_WITHOUT_120": lambda version: any(
        group.name == "llm" and group.range_of([120]) is None for group in rules_for(version).groups
    ),
    "OPENS_LIBRARIES": lambda version: rules_for(version).opens_libraries,
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_was_read_agrees_with_the_releases(name: str) -> None:
    assert HOLDS[name] == ["x" if RULES[name](version) else "o" for version in VERSIONS]


@pytest.mark.parametrize(("version", "line", "known"), table("ort/lines.txt"))
def test_the_nearest_known_line(version: str, line: str, known: str) -> None:
    assert (standing_for(version).line, is_known(version)) == (line, known == "known")


@pytest.mark.parametrize(
    ("version", "cuda", "gcc", "cxx"),
    [
        *(("1.20.1", "11.4", "9", "17"), ("1.21.0", "11.4", "9", "17"), ("1.22.0", "11.4", "11.1", "17")),
        *(("1.23.2", "11.4", "11.1", "17"), ("1.30.0", "12.0", "11.1", "20")),
    ],
)
def test_oldest_tools(version: str, cuda: str, gcc: str, cxx: str) -> None:
    least = {name: fact.value for name, fact in rules_for(version).minimums.items()}
    assert least == {"cuda": cuda, "gcc": gcc, "cmake": "3.28", "cxx": cxx}


def test_only_a_release_s_own_source_says_what_is_never_launched() -> None:
    assert rules_for("1.21.0").launches
    assert not rules_for("1.21.0").stands_in
    other = rules_for("1.23.2")
    assert (other.version, other.launches, other.stands_in) == ("1.23.2", (), True)


NEEDED = {
    "1.23.2": {"cublasLt", "cublas", "curand", "cufft", "cudart", "cudnn"},
    "1.31.1": {"cublasLt", "cublas", "curand", "cudart"},
}
"""NVIDIA's libraries in NEEDED of the two official providers, by readelf; 1.21.0's has nvrtc too."""

IN_THE_BYTES = {"nvrtc"}
"""Further NVIDIA libraries whose names, with ``.so``, are in the bytes of 1.31.1's provider."""


def test_what_is_opened_is_what_the_newer_wheel_does_not_name() -> None:
    for opened in OPENED.values():
        assert {name.removeprefix("lib").partition(".")[0] for name in opened} == (
            NEEDED["1.23.2"] - NEEDED["1.31.1"] | IN_THE_BYTES
        )
