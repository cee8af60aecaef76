"""Tests of ``--json``: documents are as their schemas say, and standard output has nothing else."""

import hashlib
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.build.verbs.verb_answers import (
    checks_answer,
    dumps,
    packages_answer,
    require_no_problems,
)
from builder.errors import CheckFailedError, IntegrityError
from tests.support.factories.project_copy import Place
from tests.support.schemas import schema

FINDING = "error A001 lib/x.so: no SASS for sm_50"


def test_a_package_that_fails_is_in_the_document_and_ends_the_verb(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.tar.zst", tmp_path / "bad.tar.zst"
    for path in (good, bad):
        path.write_bytes(path.name.encode())
    answer = packages_answer({good: (), bad: (FINDING,)})
    document = json.loads(dumps(answer))
    schema("packages").validate(document)
    first, second = document["packages"]
    assert first["sha256"] == hashlib.sha256(b"good.tar.zst").hexdigest()
    assert (first["verified"], second["verified"], second["problems"]) == (True, False, [FINDING])
    with pytest.raises(CheckFailedError, match="1 of 2 failed") as caught:
        require_no_problems(answer)
    assert caught.value.findings == (FINDING,)
    require_no_problems(packages_answer({good: ()}))


def test_a_check_that_fails_is_in_the_document_and_another_error_ends_it() -> None:
    fails = Mock(side_effect=CheckFailedError("legacy does not hold what it promises", [FINDING]))
    answer = checks_answer({("x.tar.zst", "modern"): Mock(), ("x.tar.zst", "legacy"): fails})
    document = json.loads(dumps(answer))
    schema("checks").validate(document)
    assert [tuple(one.values()) for one in document["checks"]] == [
        ("modern", "x.tar.zst", True, []),
        ("legacy", "x.tar.zst", False, [FINDING]),
    ]
    with pytest.raises(IntegrityError):
        checks_answer({("photos.tar.zst", None): Mock(side_effect=IntegrityError("damaged"))})


def test_standard_output_has_the_document_or_nothing(copied: Place, tmp_path: Path) -> None:
    asking = (
        "verify",
        "verify --read-only x.tar.zst",
        "release-status",
        "build",
        "image",
        "rebuild x.tar.zst",
    )
    for words in (*asking, "publish --dry-run", "mirror --to mirror --dry-run"):
        done = copied.run(*words.split(), "--json", "--dist", str(tmp_path))
        assert (done.returncode > 1, done.stdout, "error: " in done.stderr) == (True, "", True), words
    (tmp_path / "index.json").write_text("{}")
    done = copied.run("clean", "--json", "--dry-run", "--dist", str(tmp_path))
    assert [one["path"] for one in json.loads(done.stdout)["paths"]] == [str(tmp_path / "index.json")]
    assert f"results in {tmp_path}: " in done.stderr
