"""Tests of storing a command's output: what the file holds, and how a build is shortened."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import record
from builder.build.verbs.pages import PARTS
from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter


def test_a_stored_result_is_a_part_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs/results").mkdir(parents=True)
    monkeypatch.setattr(record, "result_file", lambda _root, name: tmp_path / f"docs/results/{name}.txt")
    command = [sys.executable, "-c", "print('one'); print('two')"]
    monkeypatch.setattr(sys, "argv", ["record", "--note", "calm", "speed", *command])
    record.main()
    shown = list(PARTS["result"](Wiring(tmp_path, reporter=FakeReporter()), "speed"))
    assert shown[:5] == ["```text", "one", "two", "```", ""]
    facts = (
        r"`.* -c .*`, \d{4}-\d\d-\d\d, commit [0-9a-f]{7,}; \S+ \S*, \d+ cores, \d+ GiB, calm, took \d+ s\."
    )
    assert re.fullmatch(facts, shown[5])


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "left with code 3"),
        ("print('1 passed, 2 skipped in 0.91s')", "speed: a test was skipped"),
    ],
)
def test_a_command_that_fails_or_tests_nothing_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    monkeypatch.setattr(record, "result_file", lambda _root, name: tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["record", "speed", sys.executable, "-c", program])
    with pytest.raises(SystemExit, match=why):
        record.main()
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_the_release_tier_stores_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "result_file", lambda _root, name: tmp_path / name)
    monkeypatch.setitem(record.RELEASE_TIER, "fuzz-readers", (sys.executable, "-c", "print('none broke')"))
    monkeypatch.setattr(sys, "argv", ["record", "--release-tier", "fuzz-readers"])
    record.main()
    assert [path.name for path in tmp_path.iterdir()] == ["fuzz-readers"]
    assert "none broke" in (tmp_path / "fuzz-readers").read_text(encoding="utf-8")


def test_a_build_is_shortened_to_its_plan_and_its_results() -> None:
    lines = ["• plan modern", "✓ render modern 0.1 s", "  libcurand.so.10  containers 4", "    got:    60 70"]
    package = f"  ortpacks-modern.tar.zst  1,643 MB  sha256 {'7ad46fe5' * 8}"
    assert record.shortened([*lines, "  native   on 7.5", package, "✓ bundle modern 11.7 s"]) == [
        "• plan modern",
        "  native   on 7.5",
        "  ortpacks-modern.tar.zst  1,643 MB  sha256 7ad46fe57ad4…",
        "✓ bundle modern 11.7 s",
    ]
