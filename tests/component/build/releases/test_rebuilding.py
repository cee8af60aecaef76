"""Tests of ``rebuild`` for a folder, a file and a server. A stand-in for the build copies a ready package."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from builder.build.verbs.releases import rebuilding
from builder.build.verbs.verb_answers import dumps
from builder.client.install.prefix import Prefix
from builder.client.install.signed import Trust
from builder.errors import CheckFailedError, IntegrityError, NothingToDoError, TransferError, ValidationError
from builder.formats.trust import TARGETS
from builder.io.wiring import Wiring
from builder.publish.prepare import ROOTS
from tests.doubles.release import FILES, name_of, serving, write_release
from tests.support import ROOT
from tests.support.factories.project_copy import Place
from tests.support.factories.provenance import document
from tests.support.factories.signing import FIRST, targets
from tests.support.fakes.ports import FakeReporter, reported
from tests.support.schemas import schema

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
            described(side)
        self.wiring = Wiring(ROOT, dist=folder / "dist", reporter=FakeReporter())
        self.trust: Trust | None = None
        self.asked: list[list[str]] = []
        self.document: dict[str, Any] = {}
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
        answer = rebuilding.rebuild_release(self.wiring, str(release), variant, self.into, 3, self.trust)
        self.document = json.loads(dumps(answer))
        schema("checks").validate(self.document)
        rebuilding.require_same(self.wiring, str(release), answer)

    @property
    def lines(self) -> list[str]:
        return reported(self.wiring)


def described(folder: Path, command: str = "") -> None:
    """Write the provenance of each package in ``folder``."""
    for package in folder.glob("*.tar.zst"):
        variant = package.name.split("-")[1]
        ours = command or f"./run build --variant {variant} --base assembled"
        made = json.loads(document(externalParameters__command=ours, externalParameters__variant=variant))
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
    described(shop.made)


def test_the_same_bytes_are_told_so_also_of_one_variant_or_file(shop: Shop) -> None:
    shop.rebuild(shop.release)
    assert f"{shop.release}: 2 packages are bit for bit what this tree makes" in shop.lines
    shop.rebuild(shop.release, "modern")
    shop.rebuild(shop.release / f"{LEGACY}.provenance.json")
    names = ("legacy", "modern", "modern", "legacy")
    assert shop.asked == [["--variant", one, "--base", "assembled", "3"] for one in names]


def test_a_release_is_not_rebuilt_into_its_own_folder(shop: Shop) -> None:
    """A build there finds its packages up to date, and each would be the same as itself."""
    (shop.into.parent / "link").symlink_to(shop.release)
    shop.into = shop.into.parent / "link"
    with pytest.raises(ValidationError, match="is the release's own folder"):
        shop.rebuild(shop.release / LEGACY)
    assert shop.asked == []


def test_what_differs_is_told_file_by_file(shop: Shop) -> None:
    changed(shop)
    with pytest.raises(CheckFailedError, match="is not what this tree makes") as caught:
        shop.rebuild(shop.release)
    found = [one for one in caught.value.findings if PROVIDER in one]
    size = len(FILES[PROVIDER])
    told = f"{PROVIDER}: {size:,} bytes, the first other byte at {size - 1:,}; no device code"
    assert [one.endswith(told) for one in found] == [True, True]
    assert found[0].startswith(f"{LEGACY}: ")
    first = shop.document["checks"][0]
    assert (first["variant"], first["package"], first["ok"]) == ("legacy", LEGACY, False)
    assert found[0] in first["problems"]
    assert not [path for path in shop.into.iterdir() if path.name.startswith(".compare")]


def test_without_the_archive_the_sums_are_told(shop: Shop) -> None:
    changed(shop)
    (shop.release / LEGACY).unlink()
    with serving(shop.release) as server, pytest.raises(CheckFailedError) as caught:
        shop.rebuild(f"{server.url}/", "legacy")
    (line,) = caught.value.findings
    assert "the differences cannot be found" in line


def test_a_package_that_this_tree_does_not_make_is_told(shop: Shop) -> None:
    (shop.made / MODERN).unlink()
    with pytest.raises(CheckFailedError) as caught:
        shop.rebuild(shop.release)
    assert caught.value.findings == (f"{MODERN}: this tree makes no such package",)


def test_a_release_on_a_server_is_fetched_where_it_differs_and_its_login_is_in_no_message(shop: Shop) -> None:
    with serving(shop.release) as server:
        place = f"{server.url}/".replace("://", "://ada:secret@")
        shop.rebuild(place)
        assert not (shop.into / "released").exists()
        with pytest.raises(NothingToDoError, match="has no package latest") as nothing:
            shop.rebuild(place, "latest")
        changed(shop)
        with pytest.raises(CheckFailedError) as differs:
            shop.rebuild(f"{place}index.json", "legacy")
    assert any(PROVIDER in one for one in differs.value.findings)
    assert "secret" not in f"{shop.lines} {nothing.value} {differs.value}"


def test_a_package_or_provenance_that_is_not_there_is_told(shop: Shop) -> None:
    files = (shop.release / LEGACY, shop.release / f"{LEGACY}.provenance.json")
    for lost, named in (files, files[::-1]):
        kept = lost.rename(lost.with_name("kept"))
        with pytest.raises(TransferError, match=rf"{lost}: not there.* in its release"):
            shop.rebuild(named)
        kept.rename(lost)


def test_an_archive_with_the_provenance_of_another_is_refused(shop: Shop) -> None:
    """Another archive with the honest one's provenance is not what this tree makes."""
    honest = (shop.release / LEGACY).read_bytes()
    replace_archive(shop.release, honest[:-1] + b"!")
    with serving(shop.release) as server:
        for release in (shop.release, f"{server.url}/"):
            with pytest.raises(IntegrityError, match="is not the archive of its provenance"):
                shop.rebuild(release)
        replace_archive(shop.release, honest)
        shop.rebuild(f"{server.url}/")
    assert len(shop.asked) == 2, "the refused ones were not built"


def replace_archive(release: Path, content: bytes) -> None:
    """Give ``legacy`` other bytes, which the index names."""
    (release / LEGACY).write_bytes(content)
    index = json.loads((release / "index.json").read_text())
    (mine,) = (one for one in index["packages"] if one["file"] == LEGACY)
    mine |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (release / "index.json").write_text(json.dumps(index))


def test_a_release_must_be_signed_where_the_project_has_a_root(shop: Shop, place: Place) -> None:
    (place.folder / ROOTS).mkdir()
    (place.folder / ROOTS / "1.root.json").write_bytes(FIRST)
    described(shop.release, "./run image")
    assert "is not signed" in place.fails(7, "rebuild", str(shop.release))
    unsigned = place.fails(2, "rebuild", str(shop.release), "--trust-unsigned")
    assert "'./run image' is no command that makes a package" in unsigned


def test_what_is_rebuilt_was_signed(shop: Shop) -> None:
    now = datetime.now(UTC)
    shop.trust = Trust(FIRST, now, Prefix(shop.into))
    files = {path.name: path.read_bytes() for path in shop.release.iterdir()}
    (shop.release / TARGETS).write_bytes(targets(files, now=now))
    with serving(shop.release) as server:
        for release in (shop.release, f"{server.url}/"):
            shop.rebuild(release)
        replace_archive(shop.release, b"malicious")
        described(shop.release)
        for release in (shop.release, f"{server.url}/"):
            with pytest.raises(IntegrityError, match=r"names no file of these bytes|is not what was signed"):
                shop.rebuild(release)
    assert len(shop.asked) == 4
