"""Tests of a plug-in in stock hosts, whose wheels are fetched: on virtual cards, and computing."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ortpacks_runtime.one_node import ONE_NODE

from builder.config.inputs import PLUGIN_HOSTS, host_wheel
from builder.contents.reading import read_file
from builder.errors import TransferError
from builder.facts.gpu.architectures import Capability
from builder.finding import Code
from builder.io.archive.client_zipapp import build_client
from builder.prove.cards import CardBench, CardRequest
from builder.prove.selftest import SelftestTrial, Tensor
from builder.prove.virtualcard.sessions import DRIVER
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.doubles.plugin import ENTRY, Machine, compiled, described
from tests.support import ROOT
from tests.support.factories.binaries import sass
from tests.support.fakes.ports import FakeReporter

pytestmark = needs_compiler

CARDS = (Capability(5, 2), Capability(6, 1), Capability(8, 6))


def host(version: str) -> Path:
    try:
        return pairs.store().unpack(host_wheel(version))
    except TransferError as error:
        pytest.skip(f"the wheel of onnxruntime {version} is not here: {error}")


@pytest.mark.parametrize("version", [PLUGIN_HOSTS[0], PLUGIN_HOSTS[-1]])
def test_the_oldest_and_the_newest_host_register_and_run_it(tmp_path: Path, version: str) -> None:
    """1.24.4 does not hand the options of ``add_provider_for_devices`` on as the plug-in reads them."""
    tree = host(version)
    if not pairs.python_can_import(version, host_wheel):
        pytest.skip(f"the wheel of onnxruntime {version} is not one for this Python")
    machine = Machine(tmp_path / "data", build_client(ROOT, tmp_path / "ortpacks.pyz", None))
    machine.install(described("p", {"8.6": "native"}))
    said = machine.runs("8.6", tree)
    assert (said["session"], said["tf32"], said["product"]) == (["cuda", "p"], "1", [[18, 18], [18, 18]])


@pytest.fixture(scope="module")
def plugin(module_folder: Path) -> Path:
    """Return a plug-in with a container of SASS for 5.2 and 8.6, in the folder ``lib``."""
    (module_folder / "libcudart.so.12").symlink_to(runtime().library)
    (module_folder / "code").write_bytes(sass(52, 86))
    return compiled(module_folder / ENTRY.library, module_folder / "code", module_folder / "libcudart.so.12")


@pytest.fixture
def bench(tmp_path: Path) -> CardBench:
    model = tmp_path / "one.onnx"
    model.write_bytes(ONE_NODE)
    return CardBench(
        wiring=SimpleNamespace(reporter=FakeReporter()),  # type: ignore[arg-type]
        runtime=runtime(),
        trials=(SelftestTrial("one", model, (Tensor("x", "f32", (2, 2), bytes(16)),)),),
        cards=CardRequest(capabilities=CARDS, driver=DRIVER, whole=False),
        grids=[],
        hosts={one: host(one) / f"onnxruntime/capi/libonnxruntime.so.{one}" for one in PLUGIN_HOSTS},
    )


def test_in_each_host_each_card_runs_what_the_bytes_say(bench: CardBench, plugin: Path) -> None:
    """1.28.0 and 1.30.0 load a plug-in twice; its container is one all the same."""
    assert bench.open_plugin(plugin) == ()
    said = bench.wiring.reporter.lines  # type: ignore[attr-defined]
    for version in PLUGIN_HOSTS:
        for card, support in zip(CARDS, ("native", "none", "native"), strict=True):
            at = said.index(f"{card} in onnxruntime {version}: {support}")
            runs = "fails: no kernel image" if support == "none" else "1 nodes on CUDA; 1 launches"
            assert (" of 1 containers" in said[at + 1], runs in said[at + 2]) == (True, True)


@pytest.mark.parametrize(("more", "codes"), [((), []), (("6.1",), [Code.V002] * len(PLUGIN_HOSTS))])
def test_a_package_that_claims_a_card_too_many_fails_on_it(
    bench: CardBench, plugin: Path, more: tuple[str, ...], codes: list[Code]
) -> None:
    report = SimpleNamespace(coverage=(read_file(ENTRY.library, plugin).coverage,))
    claiming = described("p", dict.fromkeys(("5.2", "8.6", *more), "native"))
    found = bench(Path("p"), claiming, plugin.parent, report)  # type: ignore[arg-type]
    assert [one.code for one in found] == codes
