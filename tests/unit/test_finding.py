"""Tests of the catalogue of codes, of the wording of findings, and that errors alone stop the pipeline."""

import inspect
import re

import pytest

from builder import finding
from builder.errors import CheckFailedError
from builder.finding import Code, Finding, Severity, require_no_errors

WARNING = Finding(code=Code.C006, path="variants.legacy.sm", message="careful", severity=Severity.WARNING)

ERROR = Finding(code=Code.A001, path="lib/x.so", message="no SASS for sm_50", wanted="sm_50", got="sm_60")


def test_codes_are_unique_sorted_and_of_a_known_family() -> None:
    names = _names_as_written()
    assert names == sorted(set(names))
    assert {name[0] for name in names} <= set("ABCERV")
    assert all(name[1:].isdigit() and len(name) == 4 for name in names)


def test_titles_are_unique_plain_sentences() -> None:
    titles = [code.value for code in Code]
    assert len(set(titles)) == len(_names_as_written())
    assert not [title for title in titles if title.endswith(".") or len(title) > 80]


def _names_as_written() -> list[str]:
    """Return the names from the source, because an enum hides a name that shares its value."""
    return re.findall(r"^    (\w+) = ", inspect.getsource(finding.Code), re.MULTILINE)


def test_a_finding_in_words() -> None:
    assert str(ERROR) == "error A001 lib/x.so: no SASS for sm_50\n    wanted: sm_50\n    got:    sm_60"


def test_an_error_alone_stops_the_pipeline_and_every_finding_is_shown() -> None:
    require_no_errors([WARNING], "check legacy")
    with pytest.raises(CheckFailedError, match="check legacy: 1 error") as caught:
        require_no_errors([WARNING, ERROR], "check legacy")
    assert len(caught.value.findings) == 2
    assert caught.value.exit_code == 6
