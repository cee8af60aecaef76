"""Tests of what publish refuses before its first request to the host; one run reports every finding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from builder.errors import CheckFailedError
from builder.files.digest import LocalFile, file_digest
from builder.formats.index import build_index
from builder.formats.manifest import BaseEntry, Driver, Manifest
from builder.formats.stored_file import StoredFile
from builder.publish.preflight import MAX_BODY, Leniency, check_files, check_index, check_notes
from builder.publish.prepare import PublishOptions
from tests.support.factories.publishing import TAG, Desk
from tests.support.factories.releases import append_sum, manifest, write_package
from tests.support.messages import Told

SHA = "0" * 64


def refused(desk: Desk, options: PublishOptions | None = None) -> str:
    with pytest.raises(CheckFailedError) as caught:
        desk.publish(options)
    assert desk.github.requests == [], "the host was asked before the findings were told"
    return str(caught.value)


NAMES = ("a b", "ä.zip", ".hidden", "a~1", "dot.", "a#b", "a:b")
"""Names that GitHub would change."""

THOUSAND = tuple(LocalFile(Path(f"f{number}"), 1, SHA) for number in range(1000))


def changed(dist: Path) -> None:
    (package,) = dist.glob("ortpacks-legacy*")
    package.write_bytes(package.read_bytes() + b"\0")


def not_vouched_for(dist: Path) -> None:
    (dist / "SHA256SUMS").unlink()


def no_package(dist: Path) -> None:
    broken = dist / "ortpacks-latest-1.23.2-cuda12.9-linux-x64.tar.zst"
    broken.write_bytes(b"<html>404</html>")
    append_sum(dist, broken)


@pytest.mark.parametrize(
    ("spoil", "findings"),
    [
        (changed, ["R002 ortpacks-legacy"]),
        (not_vouched_for, ["R001 ortpacks-legacy", "R001 ortpacks-modern"]),
        (no_package, ["R012 ortpacks-latest"]),
    ],
)
def test_what_is_wrong_in_dist_is_found(
    desk: Desk, spoil: Callable[[Path], None], findings: list[str]
) -> None:
    spoil(desk.dist)
    told = refused(desk)
    assert [finding for finding in findings if finding not in told] == []


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


OPEN = manifest("legacy", revision=None)


@pytest.mark.parametrize(
    ("made", "flag"),
    [
        (manifest("legacy", profile="lean"), "lean"),
        (manifest("legacy", profile="minimal"), "lean"),
        (OPEN, "unresolved"),
        (dataclasses.replace(OPEN, base=BaseEntry("assembled", "asked for", None)), "unresolved"),
        (manifest("legacy", version="1.21.0"), "mixed"),
        (dataclasses.replace(manifest("legacy"), cuda="12.8"), "mixed"),
        (dataclasses.replace(manifest("legacy"), cudnn="9.8.0.87"), "mixed"),
    ],
    ids=["lean", "minimal", "open revision", "assembled", "versions", "CUDA", "cuDNN"],
)
def test_less_than_a_whole_release_of_one_version_needs_a_flag(
    desk: Desk, told: Told, made: Manifest, flag: str
) -> None:
    """A repacked official wheel has no profile, so that nothing is told of modern's."""
    desk.rebuild(made)
    told(refused(desk))
    result = desk.publish(PublishOptions(allow=Leniency(**{flag: True})))
    assert (result.state, result.tag) == ("published", TAG)


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
    files = {"legacy": "x.tar.zst", "modern": "y.tar.zst"}
    packages = [(manifest(name), StoredFile(file, 5, SHA)) for name, file in files.items()]
    found = check_index(build_index("v1", packages, []), [LocalFile(Path("y.tar.zst"), 6, SHA)])
    told = [(finding.code.name, finding.path) for finding in found]
    assert told == [("R013", "x.tar.zst"), ("R013", "y.tar.zst")], "one is gone, one has another size"


def test_the_tag_follows_the_packages_not_the_configuration(desk: Desk) -> None:
    for old in desk.dist.glob("ortpacks-*.tar.zst"):
        old.unlink()
    (desk.dist / "SHA256SUMS").unlink()
    write_package(desk.dist, manifest("legacy", version="1.21.0"))
    options = PublishOptions(dry_run=True, allow=Leniency(partial=True))
    assert desk.publish(options).tag == "gpu-libs-v1.21.0"


def test_a_second_package_is_removed_as_the_findings_say(desk: Desk, told: Told) -> None:
    write_package(desk.dist, manifest("legacy", profile="lean"))
    (second,) = desk.dist.glob("ortpacks-legacy*-lean-*")
    told(refused(desk, PublishOptions(allow=Leniency(lean=True))))
    second.unlink()
    told(refused(desk))
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


def test_everything_is_told_in_one_run(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", version="1.21.0", profile="lean", revision=None))
    (package,) = desk.dist.glob("ortpacks-modern*")
    package.write_bytes(package.read_bytes() + b"\0")
    told = refused(desk)
    assert [code for code in ("R002", "R008", "R009", "R010", "R011") if code not in told] == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        *(((LocalFile(Path(name), 1, SHA),), ["R004"]) for name in NAMES),
        *(((LocalFile(Path("a"), size, SHA),), ["R005"]) for size in (0, 2_147_483_648)),
        *(((LocalFile(Path("a"), size, SHA),), []) for size in (1, 2_147_483_647)),
        (THOUSAND, []),
        ((*THOUSAND, LocalFile(Path("a"), 1, SHA)), ["R006"]),
    ],
)
def test_names_sizes_and_numbers_of_files_are_those_that_github_takes(
    files: Sequence[LocalFile], found: list[str]
) -> None:
    vouched = {file.name: file.sha256 for file in files}
    assert [finding.code.name for finding in check_files(files, vouched)] == found


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
