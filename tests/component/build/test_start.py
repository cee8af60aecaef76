"""Tests of the program's start: its imports before a verb runs, and help whose reader closes the pipe."""

import subprocess
import sys

from tests.support import ROOT, ran

SLOW = {"numpy", "onnx", "onnxruntime"}
"""Libraries that are slow to import; onnxruntime also writes an id of its own into the user's home."""


def test_the_verbs_start_without_the_slow_libraries() -> None:
    script = f"import sys, tasks\nprint(sorted({SLOW!r} & sys.modules.keys()))"
    done = ran([sys.executable, "-c", script], cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_who_has_enough_of_the_help_is_no_traceback() -> None:
    argv = [sys.executable, "-m", "builder.build.verbs.command_line", "build", "--help"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
