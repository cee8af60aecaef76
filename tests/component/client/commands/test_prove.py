"""Tests of prove: what it refuses, what it writes of failures, and the numbers of a real host library."""

import json
import os
import struct
import sys
import tempfile
from base64 import b64encode
from pathlib import Path

import onnxruntime
import pytest
from ortpacks_runtime.one_node import ONE_NODE

from builder.client.probe.processes import asker
from builder.client.trials import ort_calls
from builder.client.trials.try_out import OrtTrials, TryOut
from builder.formats.json_values import json_text
from builder.formats.ort_api import OrtApi
from builder.formats.proof import SampleModel, SampleSet, largest_difference
from builder.formats.session_log import CPU_PROVIDER, CUDA_PROVIDER, Placement
from builder.prove.virtualcard.sessions import DRIVER, machine_with_gpus
from tests.answers.card import needs_compiler
from tests.doubles.library import APPEND_CUDA, CREATE_SESSION, library
from tests.doubles.machine import Machine
from tests.doubles.plugin import release_of_plugins
from tests.doubles.release import PLUGINS, name_of, replace_host, write_release
from tests.support import ran
from tests.support.schemas import schema

ADD = SampleModel(
    name="add",
    tolerance=1e-3,
    inputs=("a:f32:1:AADAPw==", "b:f32:1:AAAQQA=="),
    outputs=("c",),
)
"""1.5 + 2.25, as little-endian floats."""

PROOF = "ortpacks-proof-8.6.json"

NODES = "Number of nodes: 1"

CUDA_35 = "CUDA failure 35: CUDA driver version is insufficient ; GPU=-1 ; hostname=vm ; expr=x"


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "add.onnx").write_bytes(ort_calls.model())
    (folder / "models.json").write_text(json_text(SampleSet(1, (ADD,))))
    return folder


@pytest.fixture
def proving(
    machine: Machine, release: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ...]:
    """Return the command's words, on a machine with an installed package."""
    monkeypatch.chdir(tmp_path)
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    return ("prove", "--samples", str(samples))


@pytest.mark.parametrize(
    ("host", "finding"),
    [
        (library("1.23.2", refuses=[APPEND_CUDA], why=CUDA_35), "CUDA error 35"),
        (library("1.23.2", refuses=[CREATE_SESSION], why="Load /home/me/add.onnx failed"), "it failed"),
        (library("1.23.2", crashes=[APPEND_CUDA]), "the process died of SIGILL"),
        (library("1.23.2"), "it failed"),
    ],
)
def test_a_failure_is_a_finding_that_names_no_machine(
    machine: Machine, proving: tuple[str, ...], tmp_path: Path, host: bytes, finding: str
) -> None:
    replace_host(machine.lib.parent, host)
    assert machine.run(*proving) == 6
    assert f"add: {finding}" in machine.out
    text = (tmp_path / PROOF).read_text()
    said = json.loads(text)
    schema("proof").validate(said)
    assert text in machine.err  # shown before it was written
    assert [one["finding"] for one in said["models"]] == [finding]
    assert (said["package"], said["capability"], said["driver"]) == (name_of("modern"), "8.6", "570.133.07")
    assert not any(word in text for word in ("vm", "/home", str(tmp_path)))
    assert machine.run(*proving, "--json") == 6
    schema("client").validate(json.loads(machine.out))


def test_right_numbers_are_written_and_wrong_ones_are_a_finding(
    machine: Machine, proving: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No machine of these tests has a GPU, so the trial is made up."""
    placement = Placement()
    placement.add_message("VerifyEachNodeIsAssignedToAnEp", f"All nodes placed on [{CUDA_PROVIDER}]. {NODES}")
    for apart, finding, code in ((1e-3, None, 0), (2e-3, "the numbers differ", 6)):
        figures = {"difference": apart, "gpu_ms": 0.5, "cpu_ms": 1.5}
        tried = TryOut(ran=True, version="1.23.2", placement=placement, figures=figures)
        monkeypatch.setattr(OrtTrials, "measure", lambda *_, tried=tried: tried)
        assert machine.run(*proving) == code
        (said,) = json.loads((tmp_path / PROOF).read_text())["models"]
        wanted = {"name": "add", "nodes": 1, "cuda": 1, **figures, "finding": finding}
        assert {key: value for key, value in said.items() if key != "sha256"} == wanted


def test_nothing_is_written_where_it_cannot_or_may_not_be(
    machine: Machine, proving: tuple[str, ...], tmp_path: Path
) -> None:
    assert machine.run("prove", "--samples", str(tmp_path)) == 2
    machine.says = [False]
    assert machine.run(*proving) == 3
    machine.env = {"ORTPACKS_FORCE_CC": "none"}
    assert machine.run(*proving) == 3
    machine.env = {"ORTPACKS_FORCE_CC": "8.6"}
    plugins = write_release(tmp_path / "plugins", builds=[PLUGINS]).parent
    plugin = ("--package", str(plugins / f"{name_of('modern', build=PLUGINS)}.tar.zst"))
    assert (machine.run(*proving, *plugin), "there is no host" in machine.err) == (3, True)
    (tmp_path / "old.so").write_bytes(library("1.23.2"))
    machine.env |= {"ORT_DYLIB_PATH": str(tmp_path / "old.so")}
    assert (machine.run(*proving, *plugin), "is too old" in machine.err) == (3, True)
    (machine.lib / "libonnxruntime.so.1").write_bytes(b"")
    assert machine.run(*proving) == 7
    assert not (tmp_path / PROOF).exists()


def test_an_archive_is_run_where_it_claims_the_card(
    machine: Machine, proving: tuple[str, ...], release: Path, tmp_path: Path
) -> None:
    legacy = ("--package", str(release / f"{name_of('legacy')}.tar.zst"))
    assert machine.run(*proving, *legacy) == 9
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "6.1"}
    assert machine.run(*proving, *legacy) == 6
    assert json.loads((tmp_path / "ortpacks-proof-6.1.json").read_text())["package"] == name_of("legacy")


@needs_compiler
def test_a_plugin_is_proved_in_the_stock_host_that_it_was_installed_for(
    tmp_path: Path, samples: Path, pyz: Path
) -> None:
    """The double computes on the CPU, so its numbers are right. The client's Python has no onnxruntime."""
    matrix = b64encode(struct.pack("<4f", 1, 2, 3, 4)).decode()
    product = SampleModel("product", 1e-3, (f"x:f32:2x2:{matrix}",), ("y",))
    (samples / "product.onnx").write_bytes(ONE_NODE)
    (samples / "models.json").write_text(json_text(SampleSet(1, (product,))))
    stated = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": DRIVER}
    env = {**os.environ, **stated, "XDG_DATA_HOME": str(tmp_path)}
    (host,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    release = ("--index", str(release_of_plugins(tmp_path)))
    install = ("install", *release, "--form", "plugin", "--host", str(host))
    for words in (install, ("prove", "--samples", str(samples))):
        gpus = machine_with_gpus(Path(tempfile.mkdtemp(dir=tmp_path)))
        done = ran([*gpus, sys.executable, "-S", str(pyz), *words, "--yes"], cwd=tmp_path, env=env)
        if "unshare" in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / PROOF).read_text())
    assert (said["package"], said["host"]) == (name_of("modern", build=PLUGINS), onnxruntime.__version__)
    (model,) = said["models"]
    assert (model["nodes"], model["cuda"], model["difference"], model["finding"]) == (1, 1, 0.0, None)


def test_numbers_and_times_of_a_real_host_library(samples: Path) -> None:
    (host,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    numbers, milliseconds = ort_calls.timed(OrtApi(str(host)), "cpu", ADD, samples / "add.onnx")
    assert numbers == [[3.75]]
    assert milliseconds > 0
    tried = OrtTrials(asker({}), sys.executable).open(host, "cpu", samples / "add.onnx")
    assert tried.placement
    assert tried.placement.counts == {CPU_PROVIDER: 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "apart"),
    [
        ([[1.0, 2.0], [3.0]], [[1.0, 2.5], [2.75]], 0.5),
        ([[float("nan")]], [[1.0]], None),
        ([[float("inf")]], [[float("inf")]], None),
        ([[1.0]], [[1.0, 1.0]], None),
        ([], [], None),
    ],
)
def test_the_largest_difference(
    ours: list[list[float]], theirs: list[list[float]], apart: float | None
) -> None:
    assert largest_difference(ours, theirs) == apart
