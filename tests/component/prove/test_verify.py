"""Tests of ``verify``: it unpacks a package, reads it, runs it, and finds every planted fault."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from builder.config.inputs import Input
from builder.config.variants import Preset, Variant
from builder.contents.integrity import update_checksums
from builder.contents.package_manifest import BinaryReport, Content, Member
from builder.errors import CheckFailedError, IntegrityError, ParseError, SchemaError
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


@dataclass
class Desk:
    """A finished package and its verifier; ``ran`` lists the verifier's steps."""

    package: Path
    thin: Path
    work: Path
    trees: Trees
    archive: PackageWriter
    seen: BinaryReport = field(default_factory=report)
    tested: tuple[Finding, ...] = ()
    ran: list[str] = field(default_factory=list)
    reporter: FakeReporter = field(default_factory=FakeReporter)

    def verifier(self) -> Verifier:
        wiring = Wiring(ROOT, dist=self.work, reporter=self.reporter)
        return Verifier(wiring, self.reporter, bench(FakeEngine()))

    def check(self, members: Sequence[Member], variant: Variant, *_: object) -> BinaryReport:
        assert all(member.file.is_file() for member in members)
        self.ran.append(f"check {variant.name} {len(variant.sm)}")
        return self.seen

    def selftest(self, manifest: Manifest, files: Mapping[str, Path], _: object) -> tuple[Finding, ...]:
        assert all(file.is_file() for file in files.values())
        self.ran.append(f"selftest {len(files)} files {manifest.onnxruntime.version}")
        return self.tested

    def tree(self, _: Wiring, __: object, wheel: WheelEntry) -> Path:
        self.ran.append(f"take {wheel.source}")
        return self.trees(Input.parse(wheel.source))

    def verify(self) -> Manifest:
        return self.verifier().verify(self.package)

    def findings(self) -> list[str]:
        with pytest.raises(CheckFailedError) as error:
            self.verify()
        assert self.left() == []
        return [" ".join(finding.split(":")[0].split()[1:3]) for finding in error.value.findings]

    def left(self) -> list[str]:
        return [path.name for path in self.work.iterdir()]

    def repack(self, change: Callable[[dict[str, object], dict[str, Path]], None]) -> None:
        """Unpack, let ``change`` edit the manifest and the files, and pack again under the same name."""
        folder = self.work.parent / "repacked"
        shutil.rmtree(folder, ignore_errors=True)
        files = {path: folder / path for path in extract(self.package, folder)}
        manifest = json.loads(files.pop("manifest.json").read_text())
        change(manifest, files)
        members = tuple(
            Member(path=path, file=file, source="built", licence="LICENSE", vendor="ortpacks").of_bytes(
                file_digest(file)
            )
            for path, file in files.items()
        )
        content = Content(manifest=json.dumps(manifest).encode(), members=members)
        self.archive.write(self.package, content, Preset.FAST, lambda _: None)
        whole = file_digest(self.package)
        update_checksums(self.package.parent, put={self.package.name: whole.sha256})


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
    desk = Desk(
        package=tmp_path / "dist" / f"{NAME}.tar.zst",
        thin=tmp_path / "dist" / f"{THIN_NAME}.tar.zst",
        work=tmp_path / "work",
        trees=Trees(tmp_path / "trees"),
        archive=PackageWriter(reporter=FakeReporter(), workers=1),
    )
    monkeypatch.setattr(verify, "check", desk.check)
    monkeypatch.setattr(verify, "selftest", desk.selftest)
    monkeypatch.setattr(verify, "wheel_tree", desk.tree)
    return desk


def test_a_good_package_is_unpacked_read_run_and_cleaned_up(desk: Desk) -> None:
    manifest = desk.verify()
    assert manifest.name == NAME
    assert desk.ran == ["check legacy 5", "selftest 25 files 1.21.0"]
    assert desk.left() == []


def test_a_thin_package_is_completed_from_the_wheels_that_it_names(desk: Desk) -> None:
    desk.package = desk.thin
    assert desk.verify().layout == "thin"
    *taken, checked, tested = desk.ran
    names = [line.removeprefix("take wheel:nvidia-").partition("-cu12==")[0] for line in taken]
    assert sorted(names) == ["cublas", "cuda-nvrtc", "cuda-runtime", "cudnn", "cufft", "curand"]
    assert (checked, tested) == ("check legacy 5", "selftest 25 files 1.21.0")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file.write_bytes(file.read_bytes() + b"patched"), "B005 lib/libcufft.so.11"),
        (lambda file: file.unlink(), "B004 lib/libcufft.so.11"),
    ],
)
def test_a_wheel_with_other_files_than_a_thin_package_names_is_refused(
    desk: Desk, change: Callable[[Path], None], told: str
) -> None:
    desk.package = desk.thin
    change(desk.trees.folder / "nvidia-cufft-cu12==11.4.1.4/nvidia/cufft/lib/libcufft.so.11")
    assert told in desk.findings()
    assert not [line for line in desk.ran if not line.startswith("take")]


def test_a_thin_manifest_that_leads_elsewhere_is_refused_before_any_wheel_is_asked_for(desk: Desk) -> None:
    desk.package = desk.thin
    desk.repack(lambda manifest, files: edit(manifest, "lib/libcufft.so.11", member="../../../etc/shadow"))
    assert desk.findings() == ["B004 lib/libcufft.so.11"]
    assert desk.ran == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda files: files["sbom.cdx.json"].write_text("{}"), "B014 sbom.cdx.json"),
        (lambda files: _edit_bom(files["sbom.cdx.json"], "libcublas.so.12", "libcublas.so.11"), "B015"),
        (lambda files: files["NOTICE"].write_text("Everything here is ours.\n"), "B017 NOTICE"),
    ],
)
def test_documents_that_say_otherwise_are_found(
    desk: Desk, change: Callable[[dict[str, Path]], None], told: str
) -> None:
    def tamper(manifest: dict[str, object], files: dict[str, Path]) -> None:
        change(files)
        for path in ("sbom.cdx.json", "NOTICE"):
            data = files[path].read_bytes()
            edit(manifest, path, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    desk.repack(tamper)
    assert any(line.startswith(told) for line in desk.findings())
    assert desk.ran == []


def _edit_bom(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(f'"lib/{old}"', f'"lib/{new}"'))


def test_provenance_of_other_bytes_beside_a_package_is_found(desk: Desk) -> None:
    (desk.package.parent / f"{desk.package.name}.provenance.json").write_text("{}")
    assert {line.split()[0] for line in desk.findings()} == {"B016"}


def test_a_package_far_from_its_build_tree_and_its_checksums_verifies(desk: Desk, tmp_path: Path) -> None:
    desk.package = Path(shutil.move(desk.package, tmp_path / "work"))
    shutil.rmtree(tmp_path / "trees")
    assert desk.verify().variant == "legacy"


def test_models_run_once_on_the_libraries_of_both_layouts(desk: Desk) -> None:
    verifier = desk.verifier()
    for package in (desk.package, desk.thin):
        verifier.verify(package)
    assert [done for done in desk.ran if done.startswith("selftest")] == ["selftest 25 files 1.21.0"]
    assert desk.reporter.lines[-1] == f"models ran on the same 18 libraries in {desk.package.name}"


def test_models_run_on_libraries_that_differ_in_one_byte_from_those_before(desk: Desk) -> None:
    """Only the provider's bytes differ: all names are the same."""
    verifier = desk.verifier()
    manifest = verifier.verify(desk.package)
    (tried,) = verifier.tried
    libraries = {entry.path: entry.sha256 for entry in manifest.files if entry.path.startswith("lib/")}
    assert dict(tried) == libraries
    other = frozenset({**libraries, "lib/libonnxruntime_providers_cuda.so": "0" * 64}.items())
    verifier = replace(verifier, tried={other: "another"})
    desk.ran.clear()
    verifier.verify(desk.package)
    assert desk.ran == ["check legacy 5", "selftest 25 files 1.21.0"]


def test_without_an_engine_it_says_that_no_model_was_run(desk: Desk) -> None:
    replace(desk.verifier(), bench=None).verify(desk.package)
    assert [line for line in desk.reporter.lines if line.startswith("!") and "no model was run" in line]


def edit(manifest: dict[str, object], path: str, **changes: object) -> None:
    files = manifest["files"]
    assert isinstance(files, list)
    next(entry for entry in files if entry["path"] == path).update(changes)


def drop(manifest: dict[str, object], path: str) -> None:
    files = manifest["files"]
    assert isinstance(files, list)
    manifest["files"] = [entry for entry in files if entry["path"] != path]


@pytest.mark.parametrize(
    ("change", "told", "ran"),
    [
        (lambda manifest, files: files.pop(CUDNN), f"B004 {CUDNN}", []),
        (lambda manifest, files: drop(manifest, CUDNN), f"B003 {CUDNN}", []),
        (lambda manifest, files: files[CUDNN].write_bytes(b"other"), f"B005 {CUDNN}", []),
        (lambda manifest, _: manifest["onnxruntime"].update(version="1.23.2"), "B002", []),
        (lambda manifest, _: manifest["onnxruntime"].update(profile="full"), "B002", []),
        (lambda manifest, _: manifest["capabilities"].update({"7.5": "native"}), "B007", ["check legacy 5"]),
    ],
)
def test_planted_faults_and_claims_that_do_not_hold_are_found_before_a_model_runs(
    desk: Desk, change: Callable[[dict[str, object], dict[str, Path]], None], told: str, ran: list[str]
) -> None:
    desk.repack(change)
    assert [finding for finding in desk.findings() if finding.startswith(told)]
    assert desk.ran == ran


def test_findings_of_the_check_and_of_the_self_test_fail_it(desk: Desk) -> None:
    closure = Finding(Code.B007, "lib/a.so", "needs libz.so.9")
    desk.seen = report(closure)
    assert desk.findings() == ["B007 lib/a.so"]
    desk.seen, desk.tested = report(), (Finding(Code.B008, "numbers", "differ"),)
    assert desk.findings() == ["B008 numbers"]


def test_bytes_that_sha256sums_does_not_name_are_found(desk: Desk) -> None:
    update_checksums(desk.package.parent, put={desk.package.name: hashlib.sha256(b"").hexdigest()})
    assert desk.findings() == [f"B008 {desk.package.name}"]


def test_a_renamed_package_is_found(desk: Desk, tmp_path: Path) -> None:
    desk.package = desk.package.rename(tmp_path / "ortpacks-latest-1.21.0-cuda12.9-lean-linux-x64.tar.zst")
    told = desk.findings()
    assert told == ["B002 ortpacks-latest-1.21.0-cuda12.9-lean-linux-x64"] * 2


@pytest.mark.parametrize("at", [0.05, 0.5, 0.95])
def test_a_truncated_or_flipped_package_is_refused_and_nothing_stays(desk: Desk, at: float) -> None:
    whole = desk.package.read_bytes()
    middle = int(len(whole) * at)
    for bad in (whole[:middle], whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]):
        desk.package.write_bytes(bad)
        with pytest.raises((IntegrityError, SchemaError, CheckFailedError)):
            desk.verify()
        assert desk.left() == []
    assert desk.ran == []


def test_what_a_killed_verify_left_is_removed(desk: Desk) -> None:
    stale = desk.work / f"verify-{NAME}.part-1"
    (stale / "lib").mkdir(parents=True)
    desk.verify()
    assert desk.left() == []


def test_a_manifest_that_is_not_text_and_a_name_that_is_none_are_told(desk: Desk, tmp_path: Path) -> None:
    content = Content(manifest=b"\xff\xfe", members=())
    desk.archive.write(desk.package, content, Preset.FAST, lambda _: None)
    with pytest.raises(ParseError, match=r"manifest\.json is not JSON"):
        desk.verify()
    desk.package.rename(tmp_path / "cudnn.tar.zst")
    desk.package = tmp_path / "cudnn.tar.zst"
    with pytest.raises(ParseError, match=r"cudnn\.tar\.zst"):
        desk.verify()
