"""Tests of the benchmark of releasing: whose memory is counted, and that a verb that fails is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measuring import descendants
from benchmarks.publishing import clone_with_keys, install, run, share_of

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


def test_both_root_keys_sign_the_root_and_the_release_key_is_another(tmp_path: Path) -> None:
    project, release = clone_with_keys(tmp_path)
    root = json.loads((project / "trust/1.root.json").read_text(encoding="utf-8"))
    roles = root["signed"]["roles"]
    assert roles["root"]["threshold"] == 2
    assert {one["keyid"] for one in root["signatures"]} == set(roles["root"]["keyids"])
    assert not set(roles["root"]["keyids"]) & set(roles["targets"]["keyids"])
    assert "PRIVATE KEY" in release.read_text(encoding="utf-8")


def test_a_client_that_installs_nothing_is_told(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text("import sys; sys.exit('no such index')", encoding="utf-8")
    with pytest.raises(SystemExit, match="no such index"):
        install(client, "http://127.0.0.1:9/index.json", "5.2", tmp_path)
