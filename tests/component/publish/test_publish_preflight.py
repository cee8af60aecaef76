"""Tests of what publish refuses before its first request to the host; one run reports every finding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from builder.errors import CheckFailedError
from builder.files.digest import LocalFile, file_digest
from builder.formats.index import StoredArchive, build_index
from builder.formats.manifest import BaseEntry, Driver, Manifest
from builder.formats.parts import StoredFile
from builder.publish.preflight import MAX_BODY, Leniency, check_files, check_index, check_notes
from builder.publish.prepare import PublishOptions
from tests.support.factories.publishing import Desk
from tests.support.factories.releases import append_sum, cut, manifest, write_package

SHA = "0" * 64


def refused(desk: Desk, options: PublishOptions | None = None) -> str:
    with pytest.raises(CheckFailedError) as caught:
        desk.publish(options)
    assert desk.github.requests == [], "the host was asked before the findings were told"
    return str(caught.value)


def codes(files: list[LocalFile], listed: dict[str, str] | None = None) -> list[str]:
    vouched = {file.name: file.sha256 for file in files} if listed is None else listed
    return [finding.code.name for finding in check_files(files, vouched)]


def test_a_package_that_changed_after_bundling(desk: Desk) -> None:
    (package,) = desk.dist.glob("ortpacks-legacy*")
    package.write_bytes(package.read_bytes() + b"\0")
    assert "R002 ortpacks-legacy" in refused(desk)


def test_a_package_that_nothing_vouches_for(desk: Desk) -> None:
    (desk.dist / "SHA256SUMS").unlink()
    told = refused(desk)
    assert "R001 ortpacks-legacy" in told
    assert "R001 ortpacks-modern" in told


def test_a_file_that_is_listed_and_gone(desk: Desk) -> None:
    extra = desk.dist / "guide.txt"
    extra.write_text("x")
    append_sum(desk.dist, extra)
    shown = desk.publish(PublishOptions(dry_run=True)).rows
    assert "guide.txt" in {row.name for row in shown}, "listed files are released"
    extra.unlink()
    desk.github.requests.clear()
    assert "R003 guide.txt" in refused(desk)


def test_a_release_without_all_packages_needs_a_flag(desk: Desk) -> None:
    """variants.yaml, not ``dist``, decides which packages a release needs."""
    (package,) = desk.dist.glob("ortpacks-modern*")
    package.unlink()
    sums = desk.dist / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if "modern" not in line))
    assert "R015 modern" in refused(desk)
    assert desk.publish(PublishOptions(allow=Leniency(partial=True))).state == "published"


@pytest.mark.parametrize("profile", ["lean", "minimal"])
def test_less_than_full_needs_a_flag(desk: Desk, profile: str) -> None:
    desk.rebuild(manifest("legacy", profile=profile))
    told = refused(desk)
    assert "R008 ortpacks-legacy" in told
    assert f"got:    {profile}" in told
    assert "modern" not in told, "a repacked official wheel has no profile"
    assert desk.publish(PublishOptions(allow=Leniency(lean=True))).state == "published"


def test_a_base_of_unknown_revision_needs_a_flag(desk: Desk) -> None:
    desk.rebuild(manifest("legacy", revision=None))
    told = refused(desk)
    assert "R009 ortpacks-legacy" in told
    assert "base nvidia has no revision. Run `./run lock --missing`" in told
    assert "1 error" in told
    assert desk.publish(PublishOptions(allow=Leniency(unresolved=True))).state == "published"


def test_of_an_assembled_base_without_a_list_it_says_that_building_it_again_makes_one(desk: Desk) -> None:
    made = manifest("legacy", revision=None)
    write_package(desk.dist, dataclasses.replace(made, base=BaseEntry("assembled", "asked for", None)))
    told = refused(desk)
    assert "base assembled has no revision. Run `./run lock --missing`" in told
    assert "build again, or pass --allow-unresolved to publish" in told


def test_mixed_versions_need_a_flag(desk: Desk) -> None:
    desk.rebuild(manifest("legacy", version="1.21.0"))
    assert "R010 the release" in (told := refused(desk))
    assert "1.21.0, 1.23.2" in told
    assert desk.publish(PublishOptions(allow=Leniency(mixed=True))).tag == "gpu-libs-v1.23.2"


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (dataclasses.replace(manifest("legacy"), cuda="12.8"), "CUDA"),
        (dataclasses.replace(manifest("legacy"), cudnn="9.8.0.87"), "cuDNN"),
    ],
)
def test_mixed_cuda_libraries_need_a_flag_too(desk: Desk, other: Manifest, what: str) -> None:
    desk.rebuild(other)
    told = refused(desk)
    assert "R010 the release" in told
    assert f"one {what} version" in told
    assert desk.publish(PublishOptions(dry_run=True, allow=Leniency(mixed=True))).state == "dry-run"


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(manifest("legacy", layout="thin"), glibc="2.99"),
        dataclasses.replace(manifest("legacy", layout="thin"), driver=Driver("999.0", None)),
        dataclasses.replace(manifest("legacy", layout="thin"), capabilities={"5.0": "none"}),
    ],
)
def test_layouts_that_do_not_promise_the_same_are_not_of_one_package(desk: Desk, other: Manifest) -> None:
    write_package(desk.dist, other)
    assert f"R014 {other.name}.tar.zst" in refused(desk)


def test_an_index_that_names_what_is_not_there() -> None:
    parts = (StoredFile("x.tar.zst.part1", 3, SHA), StoredFile("x.tar.zst.part2", 1, SHA))
    cut_up = (manifest("legacy"), StoredArchive("x.tar.zst", 4, SHA, parts))
    index = build_index("v1", [cut_up, (manifest("modern"), StoredArchive("y.tar.zst", 5, SHA))], [])
    there = [LocalFile(Path(name), size, SHA) for name, size in (("x.tar.zst.part1", 3), ("y.tar.zst", 6))]
    found = [(finding.code.name, finding.path) for finding in check_index(index, there)]
    assert found == [("R013", "x.tar.zst.part2"), ("R013", "y.tar.zst")], "one is gone, one has another size"


def test_the_tag_follows_the_packages_not_the_configuration(desk: Desk) -> None:
    for old in desk.dist.glob("ortpacks-*.tar.zst"):
        old.unlink()
    (desk.dist / "SHA256SUMS").unlink()
    write_package(desk.dist, manifest("legacy", version="1.21.0"))
    options = PublishOptions(dry_run=True, allow=Leniency(partial=True))
    assert desk.publish(options).tag == "gpu-libs-v1.21.0"


def test_two_packages_of_one_variant(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", profile="lean"))
    assert "R011 ortpacks-legacy" in refused(desk, PublishOptions(allow=Leniency(lean=True)))


def test_a_second_package_is_removed_as_the_findings_say(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", profile="lean"))
    (second,) = desk.dist.glob("ortpacks-legacy*-lean-*")
    told = refused(desk, PublishOptions(allow=Leniency(lean=True)))
    assert "Remove one of them, its .provenance.json, and their lines in SHA256SUMS." in told
    second.unlink()
    assert "it is not there. Build it again, or remove its line." in refused(desk)
    sums = desk.dist / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if second.name not in line))
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run"


def test_a_layout_or_kind_of_archive_is_no_second_package(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", layout="thin"))
    write_package(desk.dist, manifest("legacy"), suffix=".tar.gz")
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run"
    write_package(desk.dist, manifest("legacy", layout="thin", profile="lean"))
    desk.github.requests.clear()
    told = refused(desk, PublishOptions(allow=Leniency(lean=True)))
    assert "R011 ortpacks-legacy-1.23.2-cuda12.9-thin-linux-x64.tar.zst" in told
    assert told.count("R011") == 1


def test_the_whole_archive_beside_its_parts_is_one_too_many(desk: Desk) -> None:
    (package,) = desk.dist.glob("ortpacks-legacy*")
    data = package.read_bytes()
    cut(package, 90_000)
    package.write_bytes(data)
    append_sum(desk.dist, package)
    assert f"R011 {package.name}.parts.json: {package.name} is for the same variant" in refused(desk)


def test_a_part_that_is_gone_or_changed(desk: Desk) -> None:
    (package,) = desk.dist.glob("ortpacks-legacy*")
    cut(package, 90_000)
    part = package.with_name(f"{package.name}.part2")
    data = part.read_bytes()
    part.write_bytes(data[:-1] + b"\0")
    assert f"R002 {part.name}" in refused(desk)
    part.unlink()
    assert f"R003 {part.name}" in refused(desk)


def test_a_file_that_is_no_package(desk: Desk) -> None:
    broken = desk.dist / "ortpacks-latest-1.23.2-cuda12.9-linux-x64.tar.zst"
    broken.write_bytes(b"<html>404</html>")
    append_sum(desk.dist, broken)
    assert "R012 ortpacks-latest" in refused(desk)


def test_everything_is_told_in_one_run(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", version="1.21.0", profile="lean", revision=None))
    (package,) = desk.dist.glob("ortpacks-modern*")
    package.write_bytes(package.read_bytes() + b"\0")
    told = refused(desk)
    assert [code for code in ("R002", "R008", "R009", "R010", "R011") if code not in told] == []


@pytest.mark.parametrize("name", ["a b", "ä.zip", ".hidden", "a~1", "dot.", "a#b", "a:b"])
def test_names_github_would_change(name: str) -> None:
    assert codes([LocalFile(Path(name), 1, SHA)]) == ["R004"]


@pytest.mark.parametrize(
    ("size", "found"), [(0, ["R005"]), (1, []), (2_147_483_647, []), (2_147_483_648, ["R005"])]
)
def test_sizes_github_takes(size: int, found: list[str]) -> None:
    assert codes([LocalFile(Path("a"), size, SHA)]) == found


def test_at_most_1000_assets() -> None:
    files = [LocalFile(Path(f"f{number}"), 1, SHA) for number in range(1001)]
    assert codes(files[:1000]) == []
    assert codes(files) == ["R006"]


def test_the_files_that_publish_itself_writes_count_too(desk: Desk) -> None:
    """SBOMs, licences page, index, sums and signatures come to the packages and the files that are listed."""
    for number in range(995):
        extra = desk.dist / f"guide-{number}.txt"
        extra.write_text("read me")
    lines = [f"{file_digest(path).sha256}  {path.name}\n" for path in sorted(desk.dist.glob("guide-*"))]
    with (desk.dist / "SHA256SUMS").open("a") as sums:
        sums.writelines(lines)
    assert "R006 the release: too many files" in refused(desk)


def test_notes_github_takes() -> None:
    assert check_notes("x" * MAX_BODY) == []
    assert [finding.code.name for finding in check_notes("x" * (MAX_BODY + 1))] == ["R007"]
