"""Tests of proving a package against its name and manifest: its files, and NOTICE.

A thin package's manifest may be hostile: its claims on absent files become paths and arguments of pip.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

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
from tests.support.factories.documents import changed, manifest, members, without
from tests.support.factories.packages import official, plan
from tests.support.factories.records import LEGACY, with_files
from tests.support.messages import Told

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


def codes(findings: Iterable[Finding]) -> list[str]:
    return [f"{finding.code.name} {finding.path}" for finding in findings]


def test_a_package_without_nvidias_files_needs_neither_their_texts_nor_the_statement() -> None:
    files = tuple(entry for entry in FULL.files if entry.vendor != "nvidia")
    plain = replace(FULL, provider="cpu", files=files)
    assert list(check_files(plain, found(plain, packed=True))) == []
    assert list(check_notice(plain, notice("x", files))) == []
    assert "NVIDIA" not in notice("x", files)


@pytest.mark.parametrize("whole", [FULL, THIN, replace(FULL, provider="coreml")])
def test_an_archive_of_exactly_the_packed_files_is_fine(whole: Manifest) -> None:
    unpacked = {"manifest.json": Digest(1, "0" * 64), **found(whole, packed=True)}
    assert list(check_files(whole, unpacked)) == []
    assert list(check_completed(whole, found(whole, packed=False))) == []
    assert list(check_installed(whole, found(whole))) == []


ODD = Digest(1, "0" * 64)

FAULTS: dict[str, tuple[Manifest, dict[str, Digest | None]]] = {
    "a text is gone from the archive": (FULL, {CUDA_TEXT: None}),
    "a library of NVIDIA's is gone": (FULL, {CUDNN: None}),
    "a thin archive holds one": (THIN, {CUDNN: found(THIN)[CUDNN]}),
    "a file that nothing names": (FULL, {"lib/odd.so": ODD}),
    "other bytes": (FULL, {HOST: ODD}),
    "an empty text of ours": (changed(FULL, "LICENSE", size=0), {}),
    "an empty text of a wheel's": (changed(FULL, CUDA_TEXT, size=0), {}),
    "no text": (without(FULL, CUDA_TEXT), {}),
    "no text, thin": (without(THIN, CUDA_TEXT), {}),
    "a text that is not packed": (changed(THIN, CUDA_TEXT, packed=False), {}),
    "no SBOM": (without(FULL, "sbom.cdx.json"), {}),
    "an SBOM that is not packed": (changed(FULL, "sbom.cdx.json", packed=False), {}),
    "NVIDIA's file, modified": (changed(THIN, CUDNN, modified=True), {}),
    "no text of the provider's": (replace(FULL, provider="directml"), {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_an_archive_holds_against_its_manifest_is_found(fault: str, told: Told) -> None:
    whole, changes = FAULTS[fault]
    held = {**found(whole, packed=True), **changes}
    told("\n".join(map(str, check_files(whole, {path: one for path, one in held.items() if one}))))


def test_an_installed_folder_is_held_to_both_and_a_completed_one_to_its_wheels() -> None:
    there = {**found(THIN), "lib/odd.so": ODD, HOST: ODD}
    del there[CUDNN]
    assert codes(check_installed(THIN, there)) == ["B003 lib/odd.so", f"B005 {HOST}", f"B004 {CUDNN}"]
    there[CUDNN] = ODD
    assert codes(check_completed(THIN, there)) == [f"B005 {CUDNN}"]
    assert len(codes(check_completed(THIN, {}))) == len(THIN.absent) == 15
    assert codes(check_completed(FULL, {})) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": "thin"},
        {"name": "ortpacks-x"},
        {"cuda": "13.0"},
        {"variant": "modern", "platform": "windows"},
        {"onnxruntime": replace(FULL.onnxruntime, cannot_run=())},
    ],
    ids=" ".join,
)
def test_each_part_of_the_name_is_held_to_the_manifest(changes: dict[str, Any], told: Told) -> None:
    name = PackageName.parse("ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst")
    assert list(check_name(name, FULL)) == []
    told("\n".join(map(str, check_name(name, replace(FULL, **changes)))))


SOURCE = "wheel:nvidia-cudnn-cu12==9.10.2.21"

WHEEL = WheelEntry(SOURCE, "nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl", 7, "ab" * 32)


def thin(wheel: WheelEntry | None = WHEEL, **changes: object) -> Manifest:
    made = with_files(LEGACY, {"lib/libcudnn.so.9": 7})
    absent = {"source": SOURCE, "member": "nvidia/cudnn/lib/libcudnn.so.9", "packed": False, **changes}
    entry = replace(made.files[0], **absent)  # type: ignore[arg-type]
    return replace(made, files=(entry,), wheels=(wheel,) if wheel else ())


@pytest.mark.parametrize(
    "hostile",
    [
        *(thin(path=path) for path in ("../../etc/cron.d/x", "/etc/passwd", "lib/../../x", "lib/-x")),
        *(thin(member=member) for member in ("../../../etc/shadow", "/etc/shadow", "a//b", "", None)),
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
    assert list(check_absent(thin())) == []


def text(layout: Layout = Layout.FULL) -> str:
    return notice("ortpacks-x", members(plan(), layout))


def test_notice_fits_a_terminal_and_is_the_same_whatever_the_order(told: Told) -> None:
    told(text())
    told(text(Layout.THIN))
    assert max(map(len, text(Layout.THIN).splitlines())) <= 110
    assert notice("ortpacks-x", members(plan())[::-1]) == text()


@pytest.mark.parametrize("layout", list(Layout))
def test_its_own_text_passes_and_names_the_modified_file(layout: Layout) -> None:
    for made in (plan(), official()):
        assert list(check_notice(manifest(made, layout), notice("x", members(made, layout)))) == []
    lines = notice("x", members(official(), layout)).splitlines()
    assert [line.split()[0] for line in lines if "RUNPATH set to $ORIGIN" in line] == [
        "lib/libonnxruntime_providers_cuda.so"
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("  lib/libcudnn.so.9 ", "  lib/libcudnn.so.8 ", CUDNN),
        ("-curand-cu12==10.3.10.19", "-curand-cu12==10.3.10.1", "lib/libcurand.so.10"),
        ("It does not cover NVIDIA's files", "It covers all files", "NOTICE"),
        ("under an open-source licence", "under our licence", "NOTICE"),
    ],
)
def test_a_file_it_does_not_name_and_a_missing_statement_are_found(old: str, new: str, path: str) -> None:
    assert old in text()
    assert codes(check_notice(manifest(), text().replace(old, new))) == [f"B017 {path}"]


def test_a_file_below_another_licence_is_found() -> None:
    """The change puts cuDNN's files under our licence."""
    moved = text().replace("licenses/nvidia-cudnn.txt (nvidia)", "LICENSE (ortpacks)")
    assert len(list(check_notice(manifest(), moved))) == 8 + 1  # the libraries, and the licence text


@pytest.mark.parametrize("empty", ["", "\x00" * 9, "  \n  \n"])
def test_text_that_is_no_notice_names_everything_and_never_a_traceback(empty: str) -> None:
    assert len(list(check_notice(manifest(), empty))) == 1 + len(manifest().files)
