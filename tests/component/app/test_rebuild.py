"""Tests of ``rebuild`` for a folder, a file and a server. A stand-in for the build copies a ready package."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.app import rebuilding
from builder.builds.wiring import Wiring
from builder.errors import CheckFailedError, NothingToDoError, TransferError
from tests.doubles.release import FILES, name_of, serving, write_release
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter
from tests.unit.package.test_recipe import document

LEGACY, MODERN = (f"{name_of(variant)}.tar.zst" for variant in ("legacy", "modern"))

PROVIDER = "lib/libonnxruntime_providers_cuda.so"


class Shop:
    """A release in a folder, and the packages that this tree makes in its place."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = folder / "release"
        write_release(self.release)
        self.into = folder / "into"
        self.made = folder / "made"
        shutil.copytree(self.release, self.made)
        for side in (self.release, self.made):
            describe(side)
        self.wiring = Wiring(ROOT, dist=folder / "dist", reporter=FakeReporter())
        self.asked: list[list[str]] = []
        monkeypatch.setattr(rebuilding, "_build", self.build)

    def build(
        self, wiring: Wiring, arguments: Sequence[str], folder: Path, jobs: int | None, command: str
    ) -> None:
        assert any("commit" in line for line in self.lines), "departures are told before"
        self.asked.append([*arguments, str(jobs)])
        folder.mkdir(exist_ok=True)
        for file in self.made.glob(f"*-{arguments[1]}-*"):
            shutil.copy(file, folder)

    def rebuild(self, release: str | Path, variant: str | None = None) -> None:
        rebuilding.rebuild_release(self.wiring, str(release), variant, self.into, 3)

    @property
    def lines(self) -> list[str]:
        reporter = self.wiring.reporter
        assert isinstance(reporter, FakeReporter)
        return reporter.lines


def describe(folder: Path) -> None:
    """Write the provenance of each package in ``folder``."""
    for package in folder.glob("*.tar.zst"):
        variant = package.name.split("-")[1]
        command = f"./run build --variant {variant} --base assembled"
        made = json.loads(document(externalParameters__command=command, externalParameters__variant=variant))
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        made["subject"] = [{"name": package.name, "digest": {"sha256": digest}}]
        (folder / f"{package.name}.provenance.json").write_text(json.dumps(made))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


def changed(shop: Shop) -> None:
    """Let this tree make a package with another provider."""
    files = {**FILES, PROVIDER: FILES[PROVIDER][:-1] + b"!"}
    shutil.rmtree(shop.made)
    write_release(shop.made, files=files)
    describe(shop.made)


def test_the_same_bytes_are_told_so(shop: Shop) -> None:
    shop.rebuild(shop.release)
    assert f"{shop.release}: 2 packages are bit for bit what this tree makes" in shop.lines
    assert shop.asked == [["--variant", one, "--base", "assembled", "3"] for one in ("legacy", "modern")]


def test_one_variant_and_one_file_alone(shop: Shop) -> None:
    shop.rebuild(shop.release, "modern")
    shop.rebuild(shop.release / LEGACY)
    shop.rebuild(shop.release / f"{LEGACY}.provenance.json")
    assert [one[1] for one in shop.asked] == ["modern", "legacy", "legacy"]
    with pytest.raises(NothingToDoError, match="has no package latest with its provenance"):
        shop.rebuild(shop.release, "latest")


def test_what_differs_is_told_file_by_file(shop: Shop) -> None:
    changed(shop)
    with pytest.raises(CheckFailedError, match="is not what this tree makes") as caught:
        shop.rebuild(shop.release)
    found = [one for one in caught.value.findings if PROVIDER in one]
    size = len(FILES[PROVIDER])
    told = f"{PROVIDER}: {size:,} bytes, the first other byte at {size - 1:,}; no device code"
    assert [one.endswith(told) for one in found] == [True, True]
    assert found[0].startswith(f"{LEGACY}: ")
    assert not [path for path in shop.into.iterdir() if path.name.startswith(".compare")]


def test_without_the_archive_the_sums_are_told(shop: Shop) -> None:
    changed(shop)
    (shop.release / LEGACY).unlink()
    with pytest.raises(CheckFailedError) as caught:
        shop.rebuild(shop.release / f"{LEGACY}.provenance.json")
    (line,) = caught.value.findings
    assert "what differs cannot be told" in line


def test_a_package_that_this_tree_does_not_make_is_told(shop: Shop) -> None:
    (shop.made / MODERN).unlink()
    with pytest.raises(CheckFailedError) as caught:
        shop.rebuild(shop.release)
    assert caught.value.findings == (f"{MODERN}: this tree makes no such package",)


def test_a_release_on_a_server_is_fetched_where_it_differs(shop: Shop) -> None:
    with serving(shop.release) as server:
        shop.rebuild(f"{server.url}/")
        assert not (shop.into / "released").exists()
        changed(shop)
        with pytest.raises(CheckFailedError) as caught:
            shop.rebuild(f"{server.url}/index.json", "legacy")
    assert any(PROVIDER in one for one in caught.value.findings)


def test_a_package_without_its_provenance_is_told(shop: Shop) -> None:
    (shop.release / f"{LEGACY}.provenance.json").unlink()
    with pytest.raises(TransferError, match="lies beside the package in its release"):
        shop.rebuild(shop.release / LEGACY)
