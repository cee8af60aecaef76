"""Tests of wheel --index: its listing, and that each GPU gets the wheel which the client would select.

``Installer`` is a second implementation of an installer's choice, written from PEP 825's draft and the source
of NVIDIA's provider: a machine's supported values, best first, with features in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from zipfile import ZipFile

import pytest

from builder.client.selection.select import select
from builder.errors import ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage, entry_of
from builder.formats.stored_file import StoredFile
from builder.io.wiring import Wiring
from builder.publish.wheels.index import CARDS, labels, write_index
from builder.publish.wheels.package_wheels import make_wheels
from tests.support import ROOT
from tests.support.factories import official_wheels as official
from tests.support.factories import releases
from tests.support.factories.official_wheels import PLATFORM, PYTHONS, write_package
from tests.support.factories.wheel_variants import DRIVERS, told
from tests.support.fakes.ports import FakeReporter
from tests.support.html_page import Page
from tests.support.real_packages import sha256

PROJECT = "ortpacks-onnxruntime-gpu"


SIZES = {"legacy": 1_393, "modern": 1_407, "latest": 1_440, "official": 1_643, "exact": 1_400}


@dataclass
class Installer:
    """An installer that knows wheel variants, on a machine with this GPU and a driver of this
    CUDA version."""

    capability: str
    cuda: str
    order: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        major, minor = map(int, self.capability.split("."))
        newest, last = map(int, self.cuda.split("."))
        lower = [
            f"{a}.{b}" for a in range(newest, 10, -1) for b in range(last if a == newest else 20, -1, -1)
        ]
        arches = [*(f"{major}{one}_real" for one in range(minor, -1, -1)), f"{major}0_virtual"]
        self.order = [
            *(("cuda_version_lower_bound", one) for one in lower),
            *(("sm_arch", one) for one in arches),
        ]

    def takes(self, properties: Mapping[str, Mapping[str, Sequence[str]]]) -> str | None:
        """Return the variant with the best property, ties broken by the next one; ``None`` is the
        plain wheel."""
        fits = {name: self._ranks(one) for name, one in properties.items()}
        possible = {name: ranks for name, ranks in fits.items() if ranks}
        return min(possible, key=lambda name: (possible[name], name), default=None)

    def _ranks(self, features: Mapping[str, Sequence[str]]) -> list[int]:
        known = {
            feature: [self.order.index((feature, one)) for one in values if (feature, one) in self.order]
            for feature, values in features.items()
        }
        return sorted(chain.from_iterable(known.values())) if all(known.values()) else []


def entry(name: str) -> IndexPackage:
    """Return the index's entry of a variant."""
    support, driver = told(name)
    manifest = replace(
        releases.manifest("modern"),
        name=f"ortpacks-{name}-1.23.2-cuda12.9-linux-x64",
        variant=name,
        capabilities=support,
        driver=driver,
    )
    return entry_of(manifest, StoredFile(f"{manifest.name}.tar.zst", SIZES[name], "0" * 64))


def index_of(*names: str) -> Index:
    return Index(4, "t", tuple(entry(name) for name in names), ())


def selected(index: Index, capability: Capability, cuda: str) -> str | None:
    device = Device(0, "", "a GPU", capability, None, DRIVERS[cuda])
    choice = select([device], index, "linux-x64")
    return choice.package.variant if choice.package and choice.on_gpu else None


@pytest.mark.parametrize("cuda", DRIVERS)
@pytest.mark.parametrize(
    "names",
    [
        ("legacy", "modern", "latest"),
        ("legacy", "official", "latest"),
        ("legacy", "modern"),
        ("official",),
        ("latest",),
    ],
)
def test_an_installer_takes_what_select_takes_on_every_gpu(names: Sequence[str], cuda: str) -> None:
    index = index_of(*names)
    given = labels(index)
    assert given.lost == ()
    wanted = {str(one): selected(index, one, cuda) for one in CARDS}
    assert {one: Installer(one, cuda).takes(given.properties) for one in wanted} == wanted


def test_the_values_of_the_three_packages_are_those_counted_by_hand() -> None:
    """8.9 runs on modern and latest, and select takes the smaller archive."""
    properties = labels(index_of("legacy", "modern", "latest")).properties
    assert {name: " ".join(values["sm_arch"]) for name, values in properties.items()} == {
        "legacy": "50_real 52_real 60_real 61_real 70_real",
        "modern": "75_real 80_real 86_real 89_real",
        "latest": "100_real 103_real 120_real 121_real 90_real",
    }
    floors = {name: values["cuda_version_lower_bound"] for name, values in properties.items()}
    assert floors == {"legacy": ("12.0",), "modern": ("12.0",), "latest": ("12.8",)}


def test_code_for_120a_alone_is_not_called_120_real(root: Path) -> None:
    """The provider gives 120_real to 12.1 too, for which this package has no code."""
    given = labels(index_of("exact"))
    assert given.properties["exact"]["sm_arch"] == ("89_real", "90_real")
    assert given.lost == ("exact serves 12.0, and no wheel is chosen for it: 12.1 would take it too",)


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    return official.workshop(root, tmp_path)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Wiring:
    """Return a shop with wheels of a variant and for the CPU, which tests only read."""
    made = official.workshop(ROOT, tmp_path_factory.mktemp("filled"))
    make_wheels(made, write_package(made.dist))
    make_wheels(made, official.write_cpu_package(made.dist))
    return made


def test_the_page_lists_every_wheel_with_its_sha256_and_metadata(filled: Wiring, tmp_path: Path) -> None:
    """Attributes are from PEPs 503 and 714."""
    folder = write_index(filled, tmp_path / "simple") / PROJECT
    stems = [f"ortpacks_onnxruntime_gpu-1.23.2-{python}-{PLATFORM}" for python in PYTHONS]
    wheels = {f"{stem}{end}" for stem in stems for end in (".whl", "-modern.whl")}
    links = {str(link["href"]): link for link in Page((folder / "index.html").read_text()).links()}
    names = {*wheels, "ortpacks_onnxruntime_gpu-1.23.2-variants.json"}
    assert set(links) == {f"{name}#sha256={sha256(folder / name)}" for name in names}
    for name in wheels:
        link = links[f"{name}#sha256={sha256(folder / name)}"]
        assert link["data-core-metadata"] == f"sha256={sha256(folder / f'{name}.metadata')}"
        assert link["data-requires-python"] == ">=3.10"
    assert [one["href"] for one in Page((tmp_path / "simple/index.html").read_text()).links()] == [
        f"{PROJECT}/"
    ]


def test_a_variants_wheel_tells_its_own_properties_and_is_else_the_one_in_dist(
    filled: Wiring, tmp_path: Path
) -> None:
    folder = write_index(filled, tmp_path / "simple") / PROJECT
    whole = json.loads((folder / "ortpacks_onnxruntime_gpu-1.23.2-variants.json").read_text())
    for wheel in folder.glob("*-modern.whl"):
        with (
            ZipFile(wheel) as archive,
            ZipFile(filled.dist / "wheels/modern" / wheel.name.replace("-modern", "")) as plain,
        ):
            assert archive.testzip() is None
            info = "ortpacks_onnxruntime_gpu-1.23.2.dist-info"
            more = {f"{info}/variant.json"}
            assert set(archive.namelist()) == set(plain.namelist()) | more
            same = [one for one in plain.namelist() if not one.endswith("RECORD")]
            assert all(archive.read(one) == plain.read(one) for one in same)
            assert json.loads(archive.read(f"{info}/variant.json")) == whole
    assert list(whole["variants"]) == ["modern"]


def test_an_index_is_the_same_bytes_each_time_and_replaces_the_last_one(
    filled: Wiring, tmp_path: Path
) -> None:
    folder = write_index(filled, tmp_path / "simple")
    before = {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    (folder / PROJECT / "old.whl").write_bytes(b"")
    write_index(filled, folder)
    assert {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("of_index", [True, False])
def test_an_interrupt_leaves_the_earlier_folder(
    filled: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, of_index: bool
) -> None:
    """Ctrl-C comes when the new folder is to take its place."""
    index, package = write_index(filled, tmp_path / "simple"), next(filled.dist.glob("ortpacks-cpu-*.zst"))
    again: Callable[[], object] = partial(make_wheels, filled, package)
    if of_index:
        again = partial(write_index, filled, index)
    folder = index / PROJECT if of_index else filled.dist / "wheels/cpu"
    before = sorted(folder.iterdir())
    rename, interrupts = Path.rename, [KeyboardInterrupt]

    def interrupted(path: Path, target: Path) -> Path:
        if target == folder and interrupts:
            raise interrupts.pop()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        again()
    assert sorted(folder.iterdir()) == before


def test_without_a_wheel_for_the_cpu_there_is_no_index(shop: Wiring, tmp_path: Path) -> None:
    make_wheels(shop, write_package(shop.dist))
    with pytest.raises(ValidationError, match=r"no wheels of 1\.23\.2 for the CPU, which pip takes"):
        write_index(shop, tmp_path / "simple")
    assert not (tmp_path / "simple").exists()


def test_a_variant_that_no_gpu_would_take_is_left_out_and_told(shop: Wiring, tmp_path: Path) -> None:
    none = {"5.0": "none", "12.0": "partial"}
    make_wheels(shop, write_package(shop.dist, capabilities=none))
    make_wheels(shop, official.write_cpu_package(shop.dist))
    folder = write_index(shop, tmp_path / "simple") / PROJECT
    assert list(folder.glob("*-modern.whl")) == []
    assert isinstance(shop.reporter, FakeReporter)
    assert any("of modern is left out: no GPU would take it" in line for line in shop.reporter.lines)


def test_a_folder_of_something_else_is_left_alone(filled: Wiring, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    with pytest.raises(ValidationError, match="holds something else than an index of wheels"):
        write_index(filled, tmp_path / "mine")
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["file"]


def test_what_a_killed_run_left_is_removed(filled: Wiring, tmp_path: Path) -> None:
    left = tmp_path / f"simple/{PROJECT}.part-4194305-0a1b2c3d/{PROJECT}"
    left.mkdir(parents=True)
    write_index(filled, tmp_path / "simple")
    assert {one.name for one in (tmp_path / "simple").iterdir()} == {PROJECT, "index.html"}


def test_somebody_elses_wheel_among_them_is_told(shop: Wiring, tmp_path: Path) -> None:
    make_wheels(shop, write_package(shop.dist))
    stranger = shop.dist / "wheels/modern/ortpacks_onnxruntime_gpu-1.23.2-py3-none-any.whl"
    with ZipFile(stranger, "w") as archive:
        archive.writestr("x", "")
    with pytest.raises(ValidationError, match=r"is no wheel of \./run wheel"):
        write_index(shop, tmp_path / "simple")
