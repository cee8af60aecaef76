"""Tests of the kit with plug-ins: what is in it, and its script on machines that state their card."""

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
from ortpacks_runtime.one_node import ONE_NODE

from builder.build.verbs import kit
from builder.build.verbs.kit import make_kit
from builder.errors import NoCompatiblePackageError
from builder.facts.gpu.architectures import architectures
from builder.io.wiring import Wiring
from builder.prove.selftest import SelftestTrial, Tensor
from builder.prove.virtualcard.sessions import DRIVER, machine_with_gpus
from tests.answers.card import needs_compiler
from tests.doubles.plugin import release_of_plugins
from tests.doubles.release import PLUGINS, name_of, write_release
from tests.support import ROOT, ran
from tests.support.fakes.ports import FakeReporter

pytestmark = needs_compiler

STOCK = Path(onnxruntime.__file__).parents[1]


@pytest.fixture
def wiring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    """Return a ``dist`` with plug-ins that compute, for ``legacy`` and ``modern``, and one model."""
    model = tmp_path / "product.onnx"
    model.write_bytes(ONE_NODE)
    trials = (SelftestTrial("product", model, (Tensor("x", "f32", (2, 2), bytes(range(16))),)),)
    monkeypatch.setattr(kit, "selftest_trials", lambda *_: trials)
    monkeypatch.setattr(Wiring, "store", lambda *_: SimpleNamespace(unpack=lambda _: STOCK))
    return Wiring(ROOT, dist=release_of_plugins(tmp_path), reporter=FakeReporter())


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_kit_of_plugins_computes_in_the_stock_host_inside(
    wiring: Wiring, tmp_path: Path, shell: str
) -> None:
    """The machine's Python has no onnxruntime."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    make_kit(wiring, architectures("61,86"), 60)
    assert [path.suffix for path in (wiring.dist / "kit/packages").iterdir()] == [".gz", ".gz"]
    for capability, variant, code in (("8.6", "modern", 0), ("6.1", "legacy", 0), ("9.0", "", 9)):
        stated = {"ORTPACKS_FORCE_CC": capability, "ORTPACKS_FORCE_DRIVER": DRIVER, "PYTHON": str(python)}
        gpus = machine_with_gpus(Path(tempfile.mkdtemp(dir=tmp_path)))
        argv = [*gpus, shell, str(wiring.dist / "kit/prove.sh")]
        done = ran(argv, cwd=tmp_path, env={**os.environ, **stated})
        if "unshare" in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
        assert done.returncode == code, done.stderr
        if variant:
            said = json.loads((tmp_path / f"ortpacks-proof-{capability}.json").read_text())
            ran_in = (said["package"], said["host"])
            assert ran_in == (name_of(variant, build=PLUGINS), onnxruntime.__version__)
            assert [(one["cuda"], one["finding"]) for one in said["models"]] == [(1, None)]


def test_one_package_serves_several_cards(wiring: Wiring) -> None:
    make_kit(wiring, architectures("50,61"), 26)
    (package,) = (wiring.dist / "kit/packages").iterdir()
    assert package.name == f"{name_of('legacy', build=PLUGINS)}.tar.gz"


@pytest.mark.parametrize(("wanted", "limit", "room"), [("90", 60, "60"), ("61", 10, "10")])
def test_a_kit_without_a_package_that_fits_is_not_made(
    wiring: Wiring, wanted: str, limit: int, room: str
) -> None:
    """A plug-in takes the room of its host, too, and no card is served by a package for the CPU."""
    none: dict[str, object] = {"capabilities": {}, "driver": None, "sm": [], "cuda": None, "cudnn": None}
    write_release(wiring.dist, version="1.30.0", spoil=lambda told: told.update(none, provider="cpu"))
    with pytest.raises(NoCompatiblePackageError, match=f"--arch {wanted}: .* fits into the {room} MB"):
        make_kit(wiring, architectures(wanted), limit)
    assert not (wiring.dist / "kit").exists()
