"""Tests of ``verify``: it unpacks a package, reads it, runs it, and finds every planted fault."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from builder.config.inputs import Input
from builder.config.variants import Preset, Variant
from builder.contents.integrity import update_checksums
from builder.contents.package_manifest import BinaryReport, Content, Member
from builder.errors import CheckFailedError, IntegrityError, ParseError, SchemaError, ValidationError
from builder.files.digest import file_digest
from builder.finding import Code, Finding
from builder.formats.manifest import Manifest, WheelEntry
from builder.io.archive.package_writer import PackageWriter
from builder.io.archive.unpacking import extract
from builder.io.wiring import Wiring
from builder.prove import verify
from builder.prove.verify import Verifier
from tests.support import ROOT
from tests.support.factories.bundling import site_in
from tests.support.factories.packages import Trees, plan, report
from tests.support.factories.selftests import bench
from tests.support.fakes.ports import FakeEngine, FakeReporter

NAME = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64"

THIN_NAME = "ortpacks-legacy-1.21.0-cuda12.9-lean-thin-linux-x64"

CUDNN = "lib/libcudnn.so.9"


Document = dict[str, Any]

Change = Callable[[Document, dict[str, Path]], object]


def entry(manifest: Document, path: str) -> Document:
    """Return a file's entry in a manifest."""
    found: Document = next(one for one in manifest["files"] if one["path"] == path)
    return found


@dataclass
class Desk:
    """A finished package and its verifier; ``ran`` lists the verifier's steps."""

    package: Path
    thin: Path
    work: Path
    trees: Trees
    seen: BinaryReport = field(default_factory=report)
    tested: tuple[Finding, ...] = ()
    ran: list[str] = field(default_factory=list)
    reporter: FakeReporter = field(default_factory=FakeReporter)

    def verifier(self) -> Verifier:
        wiring = Wiring(ROOT, dist=self.work, reporter=self.reporter)
        return Verifier(wiring, self.reporter, bench(FakeEngine()))

    def check(self, members: Sequence[Member], variant: Variant, *_: object, stated: object) -> BinaryReport:
        assert all(member.file.is_file() for member in members)
        self.ran.append(f"check {variant.name} {len(variant.sm)}")
        return self.seen

    def selftest(self, manifest: Manifest, files: Mapping[str, Path], _: object) -> tuple[Finding, ...]:
        self.ran.append(f"selftest {len(files)} files {manifest.onnxruntime.version}")
        return self.tested

    def tree(self, _: Wiring, __: object, wheel: WheelEntry) -> Path:
        self.ran.append(f"take {wheel.source}")
        return self.trees(Input.parse(wheel.source))

    def findings(self) -> list[str]:
        with pytest.raises(CheckFailedError) as error:
            self.verifier().verify(self.package)
        assert list(self.work.iterdir()) == []
        return [" ".join(finding.split(":")[0].split()[1:3]) for finding in error.value.findings]

    def write(self, content: Content) -> None:
        writer = PackageWriter(reporter=self.reporter, workers=1)
        whole = writer.write(self.package, content, Preset.FAST, lambda _: None)
        update_checksums(self.package.parent, put={self.package.name: whole.sha256})

    def repack(self, change: Change) -> None:
        """Unpack, let ``change`` edit the manifest and the files, and pack again under the same name."""
        folder = self.work.parent / "repacked"
        files = {path: folder / path for path in extract(self.package, folder)}
        manifest = json.loads(files.pop("manifest.json").read_text())
        change(manifest, files)
        ours = Member(path="", file=folder, source="built", licence="LICENSE", vendor="ortpacks")
        members = (replace(ours, path=path, file=file) for path, file in files.items())
        hashed = tuple(member.of_bytes(file_digest(member.file)) for member in members)
        self.write(Content(manifest=json.dumps(manifest).encode(), members=hashed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a package in both layouts and the wheels it was made of, for tests to copy."""
    site = site_in(tmp_path_factory.mktemp("made"))
    site.bundle(plan())
    return site.folder


@pytest.fixture
def desk(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "work").mkdir()
    package, thin = (tmp_path / f"dist/{name}.tar.zst" for name in (NAME, THIN_NAME))
    desk = Desk(package, thin, tmp_path / "work", Trees(tmp_path / "trees"))
    monkeypatch.setattr(verify, "check", desk.check)
    monkeypatch.setattr(verify, "selftest", desk.selftest)
    monkeypatch.setattr(verify, "wheel_tree", desk.tree)
    return desk


TESTED = "selftest 25 files 1.21.0"


def test_a_good_package_is_unpacked_read_run_and_cleaned_up(desk: Desk) -> None:
    """It may be far from its build tree and its checksums, and a killed run may have left files."""
    desk.package = Path(shutil.move(desk.package, desk.work))
    shutil.rmtree(desk.trees.folder)
    (desk.work / f"verify-{NAME}.part-1/lib").mkdir(parents=True)
    manifest = desk.verifier().verify(desk.package)
    assert (manifest.name, manifest.variant) == (NAME, "legacy")
    assert desk.ran == ["check legacy 5", TESTED]
    assert [path.name for path in desk.work.iterdir()] == [desk.package.name]


def test_models_run_once_on_the_libraries_of_both_layouts_and_again_on_others(desk: Desk) -> None:
    """A thin package is completed from the wheels that it names. In the end only the provider differs."""
    verifier = desk.verifier()
    assert [verifier.verify(package).layout for package in (desk.package, desk.thin)] == ["full", "thin"]
    checked, tested, *taken, again = desk.ran
    assert (checked, tested, again) == ("check legacy 5", TESTED, "check legacy 5")
    names = [line.removeprefix("take wheel:nvidia-").partition("-cu12==")[0] for line in taken]
    assert sorted(names) == ["cublas", "cuda-nvrtc", "cuda-runtime", "cudnn", "cufft", "curand"]
    assert desk.reporter.lines[-1] == f"models ran on the same 18 libraries in {desk.package.name}"
    (tried,) = verifier.tried
    other = {**dict(tried), "lib/libonnxruntime_providers_cuda.so": "0" * 64}
    assert len(other) == 18
    replace(verifier, tried={frozenset(other.items()): "another"}).verify(desk.package)
    assert desk.ran[-1] == TESTED


def test_a_wheel_with_other_files_than_a_thin_package_names_is_refused(desk: Desk) -> None:
    desk.package = desk.thin
    (desk.trees.folder / "nvidia-cufft-cu12==11.4.1.4/nvidia/cufft/lib/libcufft.so.11").unlink()
    assert "B004 lib/libcufft.so.11" in desk.findings()
    assert not [line for line in desk.ran if not line.startswith("take")], "nothing is read or run"


def test_a_thin_manifest_that_leads_elsewhere_is_refused_before_any_wheel_is_asked_for(desk: Desk) -> None:
    desk.package = desk.thin
    cufft = "lib/libcufft.so.11"
    desk.repack(lambda manifest, files: entry(manifest, cufft).update(member="../../../etc/shadow"))
    assert desk.findings() == ["B004 lib/libcufft.so.11"]
    assert desk.ran == []


def test_provenance_of_other_bytes_beside_a_package_is_found(desk: Desk) -> None:
    (desk.package.parent / f"{desk.package.name}.provenance.json").write_text("{}")
    assert {line.split()[0] for line in desk.findings()} == {"B016"}


def test_without_an_engine_it_says_that_no_model_was_run(desk: Desk) -> None:
    replace(desk.verifier(), bench=None).verify(desk.package)
    assert [line for line in desk.reporter.lines if line.startswith("!") and "no model was run" in line]


def rewritten(path: str, change: Callable[[str], str]) -> Change:
    """Return a change of a document whose size and digest the manifest has."""

    def rewrite(manifest: Document, files: dict[str, Path]) -> None:
        files[path].write_text(change(files[path].read_text()))
        digest = file_digest(files[path])
        entry(manifest, path).update(size=digest.size, sha256=digest.sha256)

    return rewrite


SBOM = "sbom.cdx.json"


@pytest.mark.parametrize(
    ("change", "told", "ran"),
    [
        (lambda manifest, files: files.pop(CUDNN), f"B004 {CUDNN}", []),
        (lambda manifest, _: manifest["onnxruntime"].update(version="1.23.2"), "B002", []),
        (lambda manifest, _: manifest["capabilities"].update({"7.5": "native"}), "B007", ["check legacy 5"]),
        (rewritten(SBOM, lambda _: "{}"), f"B014 {SBOM}", []),
        (rewritten(SBOM, lambda text: text.replace("libcublas.so.12", "libcublas.so.11")), "B015", []),
        (rewritten("NOTICE", lambda _: "Everything here is ours.\n"), "B017 NOTICE", []),
    ],
)
def test_planted_faults_are_found_first(desk: Desk, change: Change, told: str, ran: list[str]) -> None:
    desk.repack(change)
    assert [finding for finding in desk.findings() if finding.startswith(told)]
    assert desk.ran == ran


def test_findings_of_the_check_and_of_the_self_test_fail_it(desk: Desk) -> None:
    desk.seen = report(Finding(Code.B007, "lib/a.so", "needs libz.so.9"))
    assert desk.findings() == ["B007 lib/a.so"]
    desk.seen, desk.tested = report(), (Finding(Code.B008, "numbers", "differ"),)
    assert desk.findings() == ["B008 numbers"]


def test_bytes_that_sha256sums_does_not_name_are_found(desk: Desk) -> None:
    update_checksums(desk.package.parent, put={desk.package.name: hashlib.sha256(b"").hexdigest()})
    assert desk.findings() == [f"B008 {desk.package.name}"]


@pytest.mark.parametrize("at", [0.05, 0.5, 0.95])
def test_a_truncated_or_flipped_package_is_refused_and_nothing_stays(desk: Desk, at: float) -> None:
    whole = desk.package.read_bytes()
    middle = int(len(whole) * at)
    for bad in (whole[:middle], whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]):
        desk.package.write_bytes(bad)
        with pytest.raises((IntegrityError, SchemaError, CheckFailedError)):
            desk.verifier().verify(desk.package)
        assert list(desk.work.iterdir()) == []
    assert desk.ran == []


def test_a_manifest_that_is_not_text_and_a_name_that_is_none_are_told(desk: Desk, tmp_path: Path) -> None:
    desk.write(Content(manifest=b"\xff\xfe", members=()))
    with pytest.raises(ParseError, match=r"manifest\.json is not JSON"):
        desk.verifier().verify(desk.package)
    with pytest.raises(ValidationError, match=r"'cudnn\.tar\.zst' is not a package's name"):
        desk.verifier().verify(desk.thin.rename(tmp_path / "cudnn.tar.zst"))
