"""Tests of the benchmark of releasing: whose memory is counted, and that a verb that fails is told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.publishing import descendants, run, share_of

NESTED = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


def test_the_memory_of_all_that_a_process_starts_is_counted() -> None:
    argv = [sys.executable, "-c", NESTED]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (inner,) = descendants(process.pid)
        assert process.pid in descendants(os.getpid())
        assert 10**6 < share_of(inner) < 10**9
        process.communicate("\n")
    assert list(descendants(inner)) == []
    assert share_of(inner) == 0


def test_a_verb_has_seconds_and_peaks_and_one_that_fails_is_told() -> None:
    seconds, together, largest = run(["--version"], {})
    assert seconds > 0
    assert together > 10**7
    assert largest > 10**7
    with pytest.raises(SystemExit, match="'no-such' is no verb"):
        run(["no-such"], {})
