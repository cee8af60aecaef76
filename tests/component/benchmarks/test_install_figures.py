"""Tests of the benchmark of installs: it prints every figure; one over its limit makes the exit code 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import install
from benchmarks.install import LIMITS, judged


def test_a_figure_at_its_limit_is_kept_and_one_over_it_is_not() -> None:
    lines, kept = judged(LIMITS)
    assert (len(lines), kept) == (len(LIMITS), True)
    lines, kept = judged({**LIMITS, "env, CPU s": 0.16})
    assert not kept
    assert [line.split() for line in lines if line.endswith("OVER")] == [
        ["env,", "CPU", "s", "0.16", "limit", "0.15", "OVER"]
    ]


def test_a_way_that_this_machine_lacks_has_no_line() -> None:
    lines, kept = judged({"select, CPU s": 0.1})
    assert (len(lines), kept) == (1, True)


@pytest.mark.integration
def test_a_run_prints_every_figure_that_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "COMMANDS", 1)
    monkeypatch.setattr(os, "sync", lambda: None)
    small = ["--size", "1000000", "--runs", "1", "--scratch", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["install", *small])
    with pytest.raises(SystemExit):
        install.main()
    printed = capsys.readouterr().out
    assert [line.split("  ")[0] for line in printed.splitlines()[-len(LIMITS) :]] == list(LIMITS)
    assert list(tmp_path.iterdir()) == []
