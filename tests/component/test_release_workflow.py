"""The release workflow's own script, run as a runner would."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from builder.config import render_lock
from builder.core.inputs import Lock, Pin


def test_a_release_with_an_open_revision_ends_before_anything_is_built(root: Path, tmp_path: Path) -> None:
    jobs = yaml.safe_load((root / ".github/workflows/release.yml").read_text())["jobs"]
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("pins", "build")
    script = jobs["pins"]["steps"][-1]["run"]
    pins = {"image:a:1": Pin(revision=None), "image:b:1": Pin(revision="sha256:" + "0" * 64)}
    told = _run(script, tmp_path, Lock(pins=pins))
    assert (told.returncode, "image:a:1" in told.stdout, "image:b:1" in told.stdout) == (1, True, False)
    assert "::error file=inputs.lock::" in told.stdout
    assert "'./run lock'" in told.stdout
    assert _run(script, tmp_path, Lock(pins={"image:b:1": pins["image:b:1"]})).returncode == 0


def _run(script: str, folder: Path, lock: Lock) -> subprocess.CompletedProcess[str]:
    (folder / "inputs.lock").write_text(render_lock(lock))
    shell = ["bash", "-e", "-c", script]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False)
