"""Tests of a release's wheels with unmodified pip and uv: from a mirror, and from GitHub's page of links."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.client.selection.select import select
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, loads
from builder.publish.wheels.index import CARDS
from tests.doubles.github import REPOSITORY, GitHubDouble
from tests.doubles.loopback import static_server
from tests.support import ROOT, ran
from tests.support.factories.publishing import TAG
from tests.support.factories.wheel_release import WheelShop, open_wheel_shop
from tests.support.factories.wheel_variants import DRIVERS, told
from tests.support.pypi_programs import UV, pypi_program

pytestmark = pytest.mark.thorough

PROJECT = "ortpacks-onnxruntime-gpu"

VARIANTS = ("--preview-features", "wheel-variants")


def packages(*names: str) -> Mapping[str, Mapping[str, object]]:
    """Return the changes of these variants' manifests: their support and drivers."""
    return {name: dict(zip(("capabilities", "driver"), told(name), strict=True)) for name in names}


@dataclass
class Installers:
    """Installers for a version of Python and a machine, each install into a folder of its own."""

    folder: Path
    uv: Path
    python: str = "3.12"
    machine: str = "x86_64"

    def by_uv(self, *where: str, card: str = "", cuda: str = "12.8") -> str:
        """Install by uv as on a machine with this GPU (empty: none), and return the variant."""
        forced = {"SM_ARCH": card, "CUDA_DRIVER_VERSION": cuda} if card else {}
        env = {f"NV_VARIANT_PROVIDER_FORCE_{name}": value for name, value in forced.items()}
        cache = {"UV_CACHE_DIR": str(self.folder / "cache"), "UV_NO_CONFIG": "1"}
        platform = [f"--python-version={self.python}", f"--python-platform={self.machine}-manylinux_2_28"]
        return self._installed([str(self.uv), "pip", "install", "--no-deps", *platform, *where], env | cache)

    def by_pip(self, *where: str) -> str:
        """Install by pip and return the variant."""
        abi = f"--abi=cp{self.python.replace('.', '')}"
        platform = [f"--python-version={self.python}", "--implementation=cp", abi]
        tags = [*platform, f"--platform=manylinux_2_28_{self.machine}", "--only-binary=:all:"]
        argv = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-cache-dir", *tags, *where]
        return self._installed(argv, {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})

    def _installed(self, argv: list[str], env: Mapping[str, str]) -> str:
        target = self.folder / f"site-{len(list(self.folder.iterdir()))}"
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        done = ran([*argv, "--target", str(target), PROJECT], env={**ours, **env})
        assert done.returncode == 0, " ".join(done.stderr.split())  # uv breaks lines at the terminal's width
        (told,) = target.glob("*.dist-info/ortpacks.json")
        return str(json.loads(told.read_text())["package"]["variant"])


@pytest.fixture(scope="module")
def uv() -> Path:
    return pypi_program(UV, "bin/uv")


@pytest.fixture
def installers(tmp_path: Path, uv: Path) -> Installers:
    folder = tmp_path / "sites"
    folder.mkdir()
    return Installers(folder, uv)


@pytest.fixture
def stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> WheelShop:
    return open_wheel_shop(ROOT, tmp_path, monkeypatch, packages(*request.param))


def selected(index: Index, capability: Capability, cuda: str) -> str:
    device = Device(0, "", "a GPU", capability, None, DRIVERS[cuda])
    choice = select([device], index, "linux-x64")
    assert choice.package is not None
    return choice.package.variant if choice.on_gpu else "cpu"


@pytest.mark.parametrize(
    "stall",
    [("legacy", "modern", "latest"), ("legacy", "official", "latest")],
    indirect=True,
    ids="-".join,
)
def test_uv_takes_from_a_mirror_what_select_takes_from_its_index_on_every_gpu(
    stall: WheelShop, installers: Installers
) -> None:
    stall.mirror()
    index = loads((stall.root / TAG / "index.json").read_text(), "index.json")
    machines = [(card, cuda) for card in CARDS for cuda in DRIVERS]
    wanted = {(str(card), cuda): selected(index, card, cuda) for card, cuda in machines}
    assert set(wanted.values()) | {"cpu"} == {package.variant for package in index.packages}
    with static_server(stall.root) as url:
        where = (*VARIANTS, "--default-index", f"{url}/simple")
        found = {(card, cuda): installers.by_uv(*where, card=card, cuda=cuda) for card, cuda in wanted}
    assert found == wanted


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHubDouble]:
    with GitHubDouble(tmp_path / "github").running() as double:
        yield double


@pytest.mark.parametrize("stall", [("legacy", "modern", "latest")], indirect=True, ids="-".join)
def test_githubs_page_of_a_releases_files_serves_as_links(
    stall: WheelShop, installers: Installers, github: GitHubDouble
) -> None:
    stall.publish(github)
    page = f"{github.url}/{REPOSITORY}/releases/expanded_assets/{TAG}"
    where = ("--no-index", "--find-links", page)
    assert installers.by_pip(*where) == "cpu"
    assert installers.by_uv(*where, card="8.6") == "cpu"
    found = {card: installers.by_uv(*VARIANTS, *where, card=card) for card in ("6.1", "8.6", "12.0")}
    assert found == {"6.1": "legacy", "8.6": "modern", "12.0": "latest"}
    assert installers.by_uv(*VARIANTS, *where, card="12.0", cuda="12.4") == "cpu"
