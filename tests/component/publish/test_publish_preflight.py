"""Tests of what publish refuses before its first request to the host; one run reports every finding."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.errors import CheckFailedError
from builder.files.digest import LocalFile, file_digest
from builder.formats.index import build_index
from builder.formats.manifest import Driver, Manifest, PluginEntry
from builder.formats.stored_file import StoredFile
from builder.publish.preflight import (
    MAX_BODY,
    Candidate,
    Leniency,
    check_complete,
    check_files,
    check_index,
    check_notes,
)
from builder.publish.prepare import PublishOptions
from tests.support.factories.publishing import TAG, Desk
from tests.support.factories.releases import manifest, write_package
from tests.support.messages import Told

SHA = "0" * 64


def refused(desk: Desk, options: PublishOptions | None = None) -> str:
    desk.github.requests.clear()
    with pytest.raises(CheckFailedError) as caught:
        desk.publish(options)
    assert desk.github.requests == [], "the host was asked before the findings were told"
    return str(caught.value)


@pytest.mark.parametrize(
    ("made", "flag"),
    [
        (manifest("legacy", profile="lean"), "lean"),
        (manifest("legacy", revision=None), "unresolved"),
        (manifest("legacy", version="1.21.0"), "mixed"),
        (dataclasses.replace(manifest("legacy"), cuda="12.8"), "mixed"),
        (dataclasses.replace(manifest("legacy"), cudnn="9.8.0.87"), "mixed"),
    ],
    ids=["lean", "open revision", "versions", "CUDA", "cuDNN"],
)
def test_less_than_a_whole_release_needs_a_flag(desk: Desk, told: Told, made: Manifest, flag: str) -> None:
    """A repacked official wheel has no profile, so that nothing is told of modern's.

    Of several versions of ONNX Runtime the tag has that of ``onnxruntime.version``.
    """
    desk.rebuild(made)
    told(refused(desk))
    result = desk.publish(PublishOptions(allow=Leniency(**{flag: True})))
    wanted = "gpu-libs-v1.26.0" if made.onnxruntime.version == "1.21.0" else TAG
    assert (result.state, result.tag) == ("published", wanted)


def test_each_platform_has_a_version_of_its_own(desk: Desk) -> None:
    """A client never chooses between platforms; the tag names the version of Linux' packages."""
    name = "ortpacks-windows-1.21.0-cuda12.9-win-x64"
    other = dataclasses.replace(manifest("modern", version="1.21.0"), name=name, variant="windows")
    write_package(desk.dist, dataclasses.replace(other, platform="win-x64"))
    result = desk.publish(PublishOptions(dry_run=True))
    assert (result.state, result.tag) == ("dry-run", TAG)


@pytest.mark.parametrize(
    "change",
    [{"glibc": "2.99"}, {"driver": Driver("999.0", None)}, {"capabilities": {"5.0": "none"}}],
    ids=str,
)
def test_layouts_of_one_package_promise_the_same(desk: Desk, change: dict[str, object]) -> None:
    other = dataclasses.replace(manifest("legacy", layout="thin"), **change)  # type: ignore[arg-type]
    write_package(desk.dist, other)
    assert f"R014 {other.name}.tar.zst" in refused(desk)


def test_an_index_that_names_what_is_not_there() -> None:
    files = {"legacy": "x.tar.zst", "modern": "y.tar.zst"}
    packages = [(manifest(name), StoredFile(file, 5, SHA)) for name, file in files.items()]
    found = check_index(build_index("v1", packages, []), [LocalFile(Path("y.tar.zst"), 6, SHA)])
    told = [(finding.code.name, finding.path) for finding in found]
    assert told == [("R013", "x.tar.zst"), ("R013", "y.tar.zst")], "one is gone, one has another size"


def test_a_second_package_is_refused_and_a_layout_or_kind_of_archive_is_none(desk: Desk, told: Told) -> None:
    write_package(desk.dist, manifest("legacy", layout="thin"))
    write_package(desk.dist, manifest("legacy"), suffix=".tar.gz")
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run"
    write_package(desk.dist, manifest("legacy", layout="thin", profile="lean"))
    told(refused(desk, PublishOptions(allow=Leniency(lean=True))))


def test_a_plugin_stands_beside_its_variant_s_provider_and_not_for_it(desk: Desk) -> None:
    made = manifest("legacy")
    entry = PluginEntry("lib/x.so", ("CUDAExecutionProvider",), "1.24.4", 30, None)
    name = made.name.replace("-cuda12.9", "-cuda12.9-plugin")
    write_package(desk.dist, dataclasses.replace(made, name=name, plugin=entry))
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run"
    variants = desk.project.variants.values()
    plugins = [Candidate(dataclasses.replace(made, plugin=entry), LocalFile(Path("x"), 1, SHA))]
    assert "legacy" in {finding.path for finding in check_complete(plugins, variants)}


def test_everything_is_told_in_one_run(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy", version="1.21.0", profile="lean", revision=None))
    (package,) = desk.dist.glob("ortpacks-modern*")
    package.write_bytes(package.read_bytes() + b"\0")
    (desk.dist / "ortpacks-latest-1.23.2-cuda12.9-linux-x64.tar.zst").write_bytes(b"<html>404</html>")
    said = refused(desk)
    codes = ("R001", "R002", "R008", "R009", "R010", "R011", "R012")
    assert [code for code in codes if code not in said] == []


THOUSAND = tuple(LocalFile(Path(f"f{number}"), 1, SHA) for number in range(1000))

NAMES = ("a b", "ä.zip", ".hidden", "a~1", "dot.", "a:b")
"""Names that GitHub would change."""


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
def test_names_sizes_and_numbers_are_those_of_github(files: Sequence[LocalFile], found: list[str]) -> None:
    vouched = {file.name: file.sha256 for file in files}
    assert [finding.code.name for finding in check_files(files, vouched)] == found


def test_a_file_is_vouched_for_by_its_line_and_a_line_by_its_file() -> None:
    files = [LocalFile(Path(name), 1, SHA) for name in ("listed", "not listed", "changed")]
    listed = {"listed": SHA, "changed": "1" * 64, "gone": SHA, "index.json": SHA, "SHA256SUMS": SHA}
    found = [(finding.code.name, finding.path) for finding in check_files(files, listed)]
    assert found == [("R004", "not listed"), ("R001", "not listed"), ("R002", "changed"), ("R003", "gone")]


def test_the_files_that_publish_itself_writes_count_too(desk: Desk) -> None:
    """SBOMs, licences page, index, sums and signatures come to the packages and the files that are listed."""
    guides = [desk.dist / f"guide-{number}.txt" for number in range(995)]
    for guide in guides:
        guide.write_text("read me")
    digest = file_digest(guides[0]).sha256
    with (desk.dist / "SHA256SUMS").open("a") as sums:
        sums.writelines(f"{digest}  {guide.name}\n" for guide in guides)
    assert "R006 the release: too many files" in refused(desk)


def test_notes_github_takes() -> None:
    found = [[finding.code.name for finding in check_notes("x" * size)] for size in (MAX_BODY, MAX_BODY + 1)]
    assert found == [[], ["R007"]]
