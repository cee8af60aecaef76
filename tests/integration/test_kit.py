"""Tests of the kit for a machine with a GPU, on virtual cards: the official provider, and a minimal one.

A virtual card computes nothing, so each model that ran on it has wrong numbers, and the proof says so.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builder.formats.session_log import CUDA_PROVIDER
from builder.prove.virtualcard.sessions import DRIVER, VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import needs_compiler, place, runtime
from tests.answers.models import models
from tests.support import ran
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import sha256

pytestmark = [needs_compiler, pytest.mark.thorough]


def proof(kit: Path, capability: str, folder: Path) -> dict[str, Any]:
    """Run the kit on a virtual card and return the proof, whose numbers must count as wrong."""
    (package,) = (kit / "packages").iterdir()
    for name in ("pair", "card"):
        (folder / name).mkdir()
    subprocess.run(["tar", "--strip-components=1", "-xf", package, "-C", folder / "pair"], check=True)
    card, host = VirtualCard(capability=capability), folder / "pair/lib/libonnxruntime.so.1"
    stand_ins = environment_of(host, card, runtime(), folder / "card")
    stated = {"ORTPACKS_FORCE_CC": capability, "ORTPACKS_FORCE_DRIVER": DRIVER}
    env = {**os.environ, **stand_ins, **stated}
    argv = ["timeout", "480", str(kit / "prove.sh")]
    done = ran(argv, cwd=folder, env=env)
    assert done.returncode == 6, done.stdout + done.stderr
    text = (folder / f"ortpacks-proof-{capability}.json").read_text()
    value: dict[str, Any] = json.loads(text)
    said = (value["sha256"], value["capability"], value["driver"])
    assert said == (sha256(package), capability, DRIVER)
    assert not any(word in text for word in (str(folder), os.uname().nodename))
    return value


@pytest.mark.parametrize("capability", ["9.0", "6.1"])
def test_the_official_provider_places_nodes_as_elsewhere_and_its_numbers_are_wrong(
    modern_package: Path, dist: Path, tmp_path: Path, capability: str
) -> None:
    done = invoke("kit", "--arch", "90", "--arch", "61", "--limit", "400", "--dist", dist)
    assert done.returncode == 0, done.stdout + done.stderr
    said = proof(dist / "kit", capability, tmp_path)
    results = {one["name"]: one for one in said["models"]}
    for model in (one for one in models() if one.name in {"magika", "minilm"}):
        counts, result = place(pairs.official(said["host"]), model, capability).counts, results[model.name]
        assert (result["cuda"], result["nodes"]) == (counts[CUDA_PROVIDER], sum(counts.values()))
        assert (result["finding"], result["gpu_ms"] > 0) == ("the numbers differ", True)
    assert invoke("client", "--dist", dist).returncode == 0
    refused = invoke("cards", "--dist", dist, "--add", tmp_path / f"ortpacks-proof-{capability}.json")
    assert refused.returncode == 2
    wrong = re.findall(r"(\w+): '.*' cannot be", refused.stdout + refused.stderr)
    assert wrong == ["card"], refused.stderr


def test_a_minimal_package_fits_and_runs_no_node_on_the_card(
    legacy_package: Path, dist: Path, tmp_path: Path
) -> None:
    done, kit = invoke("kit", "--arch", "61", "--dist", dist), dist / "kit"
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(file.stat().st_size for file in kit.rglob("*") if file.is_file()) <= 60_000_000
    findings = {one["finding"] for one in proof(kit, "6.1", tmp_path)["models"]}
    assert "no node ran on the card" in findings
