"""Tests of packages without CUDA, from an official wheel to a verified package. The inputs are stand-ins."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from builder.build.runtime_image import ImageOptions
from builder.build.variant_build import VariantBuild
from builder.compile.plan import PlanOptions
from builder.errors import CheckFailedError, NothingToDoError
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import Layout
from builder.io.archive.unpacking import manifest_of
from builder.io.process import Completed
from tests.support import ROOT
from tests.support.factories import repacked
from tests.support.factories.selftests import printed
from tests.support.factories.workplace import Site, variant_build, with_tools
from tests.support.fakes.ports import FakeEngine, NoEngine
from tests.support.schemas import schema

NAMES = {
    "cpu": "ortpacks-cpu-1.21.0-linux-x64.tar.zst",
    "directml": "ortpacks-directml-1.24.4-win-x64.tar.zst",
    "coreml": "ortpacks-coreml-1.30.0-macos-arm64.tar.zst",
}

TEXTS = {"LICENSE", "NOTICE", "licenses/onnxruntime-third-party.txt", "licenses/onnxruntime.txt"}

LIBRARIES = {
    "cpu": {"lib/libonnxruntime.so.1", "lib/libonnxruntime_providers_shared.so"},
    "directml": {"lib/DirectML.dll", "lib/onnxruntime.dll", "lib/onnxruntime_providers_shared.dll"},
    "coreml": {"lib/libonnxruntime.dylib"},
}

NO_CUDA: Mapping[str, object] = {
    "providers": ["CPUExecutionProvider"],
    "cuda": {"ok": False, "message": "CUDA execution provider is not enabled in this build."},
}
"""The smoke program's report on a package for the CPU."""


def engineless(folder: Path) -> Site:
    """Return a site in ``folder`` with wheels without CUDA and no engine."""
    made = Site(ROOT, folder)
    repacked.lay(folder / "cache")
    made.engine = NoEngine()
    made.use(made.engine)
    return made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return with_tools(engineless(tmp_path), monkeypatch)


@dataclass
class Shelf:
    """A site and its packages in zstd form by variant, which tests only read."""

    site: Site
    packages: dict[str, Path]

    def manifest(self, name: str) -> Manifest:
        return manifest_of(self.packages[name])


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    site = engineless(tmp_path_factory.mktemp("shelf"))
    return Shelf(site, {name: road(site, name).build()[0] for name in NAMES})


def road(site: Site, name: str) -> VariantBuild:
    return variant_build(site, name, plan=PlanOptions())


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_becomes_a_verified_package_without_an_engine(shelf: Shelf, name: str) -> None:
    assert shelf.packages[name] == shelf.site.dist / NAMES[name]
    manifest = shelf.manifest(name)
    schema("manifest").validate(json.loads(json_text(manifest)))
    extra = {"sbom.cdx.json", *(["licenses/directml.txt"] if name == "directml" else [])}
    assert {entry.path for entry in manifest.files} == LIBRARIES[name] | TEXTS | extra
    assert (manifest.variant, manifest.provider, manifest.base.name) == (name, name, "none")
    assert (manifest.driver, manifest.cuda, manifest.sm, dict(manifest.capabilities)) == (None, None, (), {})
    wheel = manifest.wheels[0].source.removeprefix("wheel:")
    theirs = {hashlib.sha256(repacked.content(one)).hexdigest() for one in repacked.WHEELS[wheel]}
    assert {entry.sha256 for entry in manifest.files if entry.path.startswith("lib/")} <= theirs
    assert not any(entry.modified for entry in manifest.files)
    archives = {NAMES[name], NAMES[name].replace(".zst", ".gz")}
    beside = {f"{archive}.provenance.json" for archive in archives}
    assert {path.name for path in shelf.site.dist.glob(f"ortpacks-{name}-*")} == archives | beside
    statement = json.loads((shelf.site.dist / f"{NAMES[name]}.provenance.json").read_text())
    made = statement["predicate"]["buildDefinition"]
    assert made["externalParameters"]["command"].startswith(f"./run build --variant {name}")
    assert shelf.site.engine.builds == []


def test_a_package_that_is_up_to_date_is_not_made_again(shelf: Shelf) -> None:
    before = shelf.packages["cpu"].stat()
    assert road(shelf.site, "cpu").build()[0].stat() == before
    assert f"{NAMES['cpu']} is up to date" in shelf.site.reporter.lines


def test_what_tries_the_package_takes_room_where_an_engine_answers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(name: str) -> set[str]:
        return {need.step for need in road(site, name).disk_needs()}

    alone = {"unpacked", "inputs", "packages", "proof"}
    assert steps("cpu") == alone
    engine = FakeEngine()
    near = replace(engine.facts(), folder=site.dist)
    monkeypatch.setattr(engine, "facts", lambda: near)
    site.use(engine)
    assert steps("cpu") == alone | {"check tools", "file systems"}
    assert steps("directml") == alone


def test_there_is_the_same_full_package_even_where_only_thin_ones_are_asked_for(
    site: Site, shelf: Shelf
) -> None:
    project = site.shop.project
    site.shop.__dict__["project"] = replace(project, bundle=replace(project.bundle, layouts=(Layout.THIN,)))
    made, gzipped = road(site, "directml").build()
    assert gzipped.name == NAMES["directml"].replace(".zst", ".gz")
    assert made.read_bytes() == shelf.packages["directml"].read_bytes()


def test_a_package_for_linux_is_tried_out_where_there_is_an_engine(site: Site) -> None:
    site.engine = FakeEngine(answer=Completed(code=0, stdout=printed(**NO_CUDA), stderr=""))
    site.use(site.engine)
    road(site, "cpu").build()
    assert [run.image for run in site.engine.runs] == ["ortpacks/bare"]
    road(site, "directml").build()
    assert len(site.engine.runs) == 1


def test_a_package_for_linux_that_fails_its_trial_is_not_kept(site: Site) -> None:
    wrong = printed(version="1.22.0", **NO_CUDA)
    site.engine = FakeEngine(answer=Completed(code=0, stdout=wrong, stderr=""))
    site.use(site.engine)
    with pytest.raises(CheckFailedError, match="B011"):
        road(site, "cpu").build()
    assert not list(site.dist.glob("*.tar.zst"))


@pytest.mark.parametrize(
    ("name", "file", "data", "told"),
    [
        ("directml", "onnxruntime.dll", repacked.dylib(b"1.24.4", b"DirectML.dll"), "E018 lib/onnxruntime"),
        ("cpu", "libonnxruntime.so.1.21.0", repacked.dll(), "E001 lib/libonnxruntime.so.1"),
        ("directml", "DirectML.dll", repacked.dll(b"DirectML.dlL"), r"B001 lib/DirectML\.dll"),
    ],
)
def test_a_library_that_is_not_what_it_should_be_is_not_packed(
    site: Site, tmp_path: Path, name: str, file: str, data: bytes, told: str
) -> None:
    spec = next(spec for spec, names in repacked.WHEELS.items() if file in names)
    (tmp_path / "cache" / spec / "onnxruntime/capi" / file).write_bytes(data)
    with pytest.raises(CheckFailedError, match=told):
        road(site, name).build()
    assert not list(site.dist.glob("*.tar.zst"))


def test_bundle_needs_no_engine_and_an_image_cannot_be_made(site: Site) -> None:
    made = [path.name for path in road(site, "coreml").bundle()]
    assert made == [NAMES["coreml"], NAMES["coreml"].replace(".zst", ".gz")]
    with pytest.raises(NothingToDoError, match="coreml has no runtime image"):
        road(site, "coreml").image(ImageOptions())
