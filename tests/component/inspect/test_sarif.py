"""Tests of findings as SARIF against the standard's own schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft4Validator

from builder.finding import Code, Finding, Severity
from builder.inspect.answers import sarif
from tests.support import ROOT
from tests.support.factories.binaries import PTX, SASS, container, elf, image
from tests.support.factories.project_copy import Place

LIBRARY = elf({".nv_fatbin": container(image(SASS, 75), image(PTX, 75))})


@pytest.fixture(scope="session")
def standard() -> Draft4Validator:
    """Return a validator of the standard's schema without the pattern of ``language``, which is
    ECMAScript only."""
    schema = json.loads((ROOT / "tests/data/sarif/sarif-2.1.0-rtm.5.json").read_text())
    for name in ("run", "toolComponent"):
        del schema["definitions"][name]["properties"]["language"]["pattern"]
    return Draft4Validator(schema)


def test_a_gpu_that_is_not_served_is_a_result(
    copied: Place, tmp_path: Path, standard: Draft4Validator
) -> None:
    (tmp_path / "my libs").mkdir()
    (tmp_path / "my libs/liba.so").write_bytes(LIBRARY)
    (tmp_path / "my libs/libcut.so").write_bytes(LIBRARY[:100])
    file = tmp_path / "found.sarif"
    source = str(tmp_path / "my libs")
    done = copied.run("inspect", source, "--require", "7.5,8.6", "--sarif", str(file))
    assert done.returncode == 6
    said: dict[str, Any] = json.loads(file.read_text())
    standard.validate(said)
    (run,) = said["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["A009", "E001"]
    cut, missing = run["results"]
    assert (cut["ruleId"], missing["ruleId"], missing["level"]) == ("E001", "A009", "error")
    assert run["tool"]["driver"]["rules"][missing["ruleIndex"]]["id"] == "A009"
    assert missing["message"]["text"] == (
        f"{source}: on 8.6: by JIT alone (--jit-ok allows that), because of liba.so."
    )
    (location,) = missing["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == str(tmp_path / "my%20libs")
    assert location["logicalLocations"] == [{"fullyQualifiedName": "liba.so"}]
    del run["tool"]
    assert not standard.is_valid(said)


def test_every_severity_is_a_level_and_a_url_stays_one(standard: Draft4Validator) -> None:
    found = [Finding(Code.B007, "", "odd", wanted="a", got="b", severity=one) for one in Severity]
    said = json.loads(sarif({"https://example.org/a b.whl": found, "empty": ()}))
    standard.validate(said)
    assert [result["level"] for result in said["runs"][0]["results"]] == ["error", "warning", "note"]
    assert said["runs"][0]["results"][0]["message"]["text"].endswith("odd. Wanted: a; got: b.")
