"""Tests of proving a package against its name and manifest: the archive's files, and later those from wheels.

A thin package's manifest may be hostile: its claims on absent files become paths and arguments of pip.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from builder.contents.integrity import (
    check_absent,
    check_completed,
    check_files,
    check_installed,
    check_name,
    check_notice,
)
from builder.contents.notice import notice
from builder.files.digest import Digest
from builder.finding import Finding
from builder.formats.manifest import Manifest, WheelEntry
from builder.formats.package_names import Layout, PackageName
from tests.support.factories.documents import changed, manifest, without
from tests.support.factories.records import LEGACY
from tests.support.factories.records import manifest as tiny_manifest

CUDNN, HOST = "lib/libcudnn.so.9", "lib/libonnxruntime.so.1"

CUDA_TEXT = "licenses/nvidia-cuda.txt"

FULL, THIN = manifest(layout=Layout.FULL), manifest(layout=Layout.THIN)


def found(whole: Manifest, *, packed: bool | None = None) -> dict[str, Digest]:
    """Return the files of an intact package: all, or those that the archive holds or does not hold."""
    return {
        entry.path: Digest(entry.size, entry.sha256)
        for entry in whole.files
        if packed is None or entry.packed is packed
    }


def told(findings: Iterable[Finding]) -> list[str]:
    return [f"{finding.code.name} {finding.path}" for finding in findings]


@pytest.mark.parametrize(
    ("provider", "missing"),
    [("cuda", []), ("cpu", []), ("coreml", []), ("directml", ["B006 licenses/directml.txt"])],
)
def test_which_texts_a_package_must_carry_goes_by_its_provider(provider: str, missing: list[str]) -> None:
    whole = replace(FULL, provider=provider)
    assert told(check_files(whole, found(whole, packed=True))) == missing


def test_a_package_without_nvidias_files_needs_neither_their_texts_nor_the_statement() -> None:
    files = tuple(entry for entry in FULL.files if entry.vendor != "nvidia")
    plain = replace(FULL, provider="cpu", files=files)
    assert told(check_files(plain, found(plain, packed=True))) == []
    assert told(check_notice(plain, notice("x", files))) == []
    assert "NVIDIA" not in notice("x", files)


@pytest.mark.parametrize("whole", [FULL, THIN])
def test_an_archive_of_exactly_the_packed_files_is_fine(whole: Manifest) -> None:
    unpacked = {"manifest.json": Digest(1, "0" * 64), **found(whole, packed=True)}
    assert told(check_files(whole, unpacked)) == []
    assert told(check_completed(whole, found(whole, packed=False))) == []
    assert told(check_installed(whole, found(whole))) == []
    assert list(check_installed(whole, found(whole))) == []


def test_a_licence_that_was_removed_is_named_as_one() -> None:
    """The manifest still lists the text, and B004 would name no file that needs it."""
    lacking = found(FULL)
    del lacking[CUDA_TEXT]
    said = told(check_files(FULL, lacking))
    assert "B006 lib/libcufft.so.11" in said
    assert not {f"B006 {CUDNN}", f"B004 {CUDA_TEXT}"} & set(said)


def test_full_expects_nvidias_libraries_in_the_archive() -> None:
    lacking = found(FULL)
    del lacking[CUDNN]
    assert told(check_files(FULL, lacking)) == [f"B004 {CUDNN}"]


def test_what_a_thin_archive_holds_against_its_manifest_is_found() -> None:
    unpacked = {**found(THIN, packed=True), CUDNN: found(THIN)[CUDNN]}
    (finding,) = check_files(THIN, unpacked)
    assert (finding.code.name, finding.path) == ("B003", CUDNN)
    assert "wheel:nvidia-cudnn-cu12==9.10.2.21" in finding.message


def test_after_completion_each_of_them_must_be_there_with_its_bytes() -> None:
    completed = found(THIN, packed=False)
    completed[CUDNN] = replace(completed[CUDNN], sha256="0" * 64)
    del completed["lib/libcufft.so.11"]
    assert sorted(told(check_completed(THIN, completed))) == ["B004 lib/libcufft.so.11", f"B005 {CUDNN}"]
    assert len(told(check_completed(THIN, {}))) == len(THIN.absent) == 15
    assert told(check_completed(FULL, {})) == []


def test_an_installed_folder_is_held_to_both() -> None:
    there = {**found(THIN), "lib/odd.so": Digest(1, "0" * 64)}
    there[HOST] = replace(there[HOST], size=1)
    del there[CUDNN]
    assert told(check_installed(THIN, there)) == ["B003 lib/odd.so", f"B005 {HOST}", f"B004 {CUDNN}"]


@pytest.mark.parametrize("path", ["LICENSE", "NOTICE", CUDA_TEXT, "licenses/onnxruntime-third-party.txt"])
def test_an_empty_licence_text_is_found(path: str) -> None:
    whole = changed(FULL, path, size=0)
    assert f"B006 {path}" in told(list(check_files(whole, found(whole))))


@pytest.mark.parametrize("whole", [FULL, THIN])
def test_a_missing_licence_text_is_found_for_every_file_that_wants_it_packed_or_not(whole: Manifest) -> None:
    lacking = without(whole, CUDA_TEXT)
    findings = told(list(check_files(lacking, found(lacking, packed=True))))
    wanting = sum(entry.licence == CUDA_TEXT for entry in lacking.files)
    assert wanting == 7
    assert findings.count("B006 lib/libcublasLt.so.12") == 1
    assert len(findings) == wanting + 1


@pytest.mark.parametrize(
    ("whole", "finding"),
    [
        (changed(THIN, CUDA_TEXT, packed=False), f"B006 {CUDA_TEXT}"),
        (without(FULL, "sbom.cdx.json"), "B014 sbom.cdx.json"),
        (changed(FULL, "sbom.cdx.json", packed=False), "B014 sbom.cdx.json"),
        (changed(THIN, CUDNN, modified=True), f"B001 {CUDNN}"),
    ],
    ids=["a text that is not packed", "no SBOM", "an SBOM that is not packed", "NVIDIA's file, modified"],
)
def test_a_file_that_is_not_as_it_must_be_is_found(whole: Manifest, finding: str) -> None:
    said = told(check_files(whole, found(whole, packed=True)))
    assert finding in said
    assert {one[:4] for one in said} == {finding[:4]}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"layout": "thin"}, ["layout"]),
        ({"name": "ortpacks-x"}, ["name"]),
        ({"cuda": "13.0"}, ["cuda"]),
        ({"variant": "modern", "platform": "windows"}, ["variant", "platform"]),
    ],
)
def test_each_part_of_the_name_is_held_to_the_manifest(changes: dict[str, str], parts: list[str]) -> None:
    name = PackageName.parse("ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst")
    whole = replace(FULL, **changes)  # type: ignore[arg-type]
    findings = list(check_name(name, whole))
    assert [finding.message.split()[0] for finding in findings] == parts
    assert {finding.code.name for finding in findings} <= {"B002"}


def test_a_lean_package_that_says_it_runs_everything_is_found() -> None:
    name = PackageName.parse("ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst")
    all_run = replace(FULL, onnxruntime=replace(FULL.onnxruntime, cannot_run=()))
    (finding,) = check_name(name, all_run)
    assert (finding.code.name, finding.wanted, finding.got) == ("B002", "operators", "none")
    assert finding.message.startswith("onnxruntime.cannot_run ")


SOURCE = "wheel:nvidia-cudnn-cu12==9.10.2.21"

WHEEL = WheelEntry(SOURCE, "nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl", 7, "ab" * 32)


def thin(wheel: WheelEntry | None = WHEEL, **changes: object) -> Manifest:
    made = tiny_manifest(LEGACY, {"lib/libcudnn.so.9": 7})
    absent = {"source": SOURCE, "member": "nvidia/cudnn/lib/libcudnn.so.9", "packed": False, **changes}
    entry = replace(made.files[0], **absent)  # type: ignore[arg-type]
    return replace(made, files=(entry,), wheels=(wheel,) if wheel else ())


def test_what_we_write_is_safe() -> None:
    assert list(check_absent(thin())) == []
    assert list(check_absent(tiny_manifest(LEGACY, {"lib/libcudnn.so.9": 7}))) == []


@pytest.mark.parametrize(
    "hostile",
    [
        thin(path="../../etc/cron.d/x"),
        thin(path="/etc/passwd"),
        thin(path="lib/../../x"),
        thin(path="lib/-x"),
        thin(member="../../../etc/shadow"),
        thin(member="/etc/shadow"),
        thin(member="a//b"),
        thin(member=""),
        thin(member=None),
        thin(source="built"),
        thin(wheel=None),
        thin(replace(WHEEL, file="../../../x.whl")),
        thin(replace(WHEEL, sha256="../../../../tmp")),
        thin(replace(WHEEL, source="wheel:--index-url=x==1"), source="wheel:--index-url=x==1"),
        thin(replace(WHEEL, source="image:x"), source="image:x"),
        thin(replace(WHEEL, source="nothing"), source="nothing"),
    ],
)
def test_what_would_lead_elsewhere_is_found_before_anything_is_fetched(hostile: Manifest) -> None:
    assert [finding.code.name for finding in check_absent(hostile)] == ["B004"]
