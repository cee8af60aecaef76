"""Tests of a client that reads from a registry whose owner changes manifests, blobs and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.client.index_address import place
from builder.client.install.source import locate
from builder.errors import IntegrityError, TransferError
from builder.files.oci_opener import bearer_parameters
from tests.support.factories.fetching import fetched, web
from tests.support.factories.publishing import TAG
from tests.support.factories.registering import Counter, open_counter

Layer = dict[str, Any]


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter]:
    with open_counter(tmp_path_factory.mktemp("mirrored")) as counter:
        counter.mirror()
        yield counter


@pytest.fixture
def counter(mirrored: Counter) -> Iterator[Counter]:
    """Return a registry that holds a release, and takes back afterwards what a test changes in it."""
    manifests, blobs = dict(mirrored.served.manifests), dict(mirrored.served.blobs)
    yield mirrored
    mirrored.served.manifests, mirrored.served.blobs = manifests, blobs


def read(counter: Counter, folder: Path) -> bytes:
    """Return the first package of the release as the client fetches it."""
    located = locate(place(f"{counter.address}:{TAG}"), web())
    return fetched(located.index.packages[0], located, folder / "prefix")


@pytest.mark.parametrize("size", [-1, -(2**70), True, 1.5, "150", None, [], {}, float("nan")])
@pytest.mark.parametrize("name", ["index.json", "ortpacks.pyz"])
def test_a_size_that_is_none_makes_it_no_release(
    counter: Counter, tmp_path: Path, size: object, name: str
) -> None:
    counter.change(lambda layer: layer.update(size=size), name)
    with pytest.raises(TransferError, match="is no release of ortpacks"):
        read(counter, tmp_path)


@pytest.mark.parametrize(
    "digest",
    [None, "", 7, "sha512:" + "0" * 128, "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64]
    + [f"sha256:{path}" for path in ("../../../token", "?x=1", "%2e%2e/" + "0" * 57, "\n" + "0" * 63)],
)
def test_a_digest_that_is_none_makes_it_no_release(counter: Counter, tmp_path: Path, digest: object) -> None:
    counter.change(lambda layer: layer.update(digest=digest))
    with pytest.raises(TransferError, match="is no release of ortpacks"):
        read(counter, tmp_path)


@pytest.mark.parametrize("size", [2**24 + 1, 2**40, 2**63, 2**70])
def test_a_document_of_any_size_is_not_read_into_memory(counter: Counter, tmp_path: Path, size: int) -> None:
    """The registry could send bytes for ever."""
    counter.change(lambda layer: layer.update(size=size))
    with pytest.raises(TransferError, match=r"index.json: larger than 16777216 bytes"):
        read(counter, tmp_path)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_document_is_what_the_manifest_names_with_its_size(
    counter: Counter, tmp_path: Path, size: int
) -> None:
    counter.change(lambda layer: layer.update(size=size))
    with pytest.raises(IntegrityError, match="is not what the manifest names"):
        read(counter, tmp_path)


FOREIGN: dict[str, Layer] = {
    "urls": {"urls": ["http://127.0.0.1:1/evil", "file:///etc/passwd"]},
    "foreign layer": {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"},
    "no type": {"mediaType": None},
    "data": {"data": "ZXZpbA=="},
    "larger than it is": {"size": 10**6},
    "platform": {"platform": {"os": "windows", "architecture": "amd64"}},
}


@pytest.mark.parametrize("more", FOREIGN.values(), ids=FOREIGN)
def test_what_else_a_layer_has_is_not_followed(counter: Counter, tmp_path: Path, more: Layer) -> None:
    counter.change(lambda layer: layer.update(more))
    content = read(counter, tmp_path)
    packages = {file.read_bytes() for file in counter.dist.glob("*.tar.zst")}
    assert content in packages


def test_a_manifest_that_changes_between_two_reads_changes_nothing(counter: Counter, tmp_path: Path) -> None:
    """The tag is resolved once: index and archives are of one release, whatever the tag names later."""
    located = locate(place(f"{counter.address}:{TAG}"), opener := web())
    package = located.index.packages[0]
    counter.replace(package.file, b"evil" * 1000)
    content = fetched(package, located, tmp_path / "prefix", opener)
    assert content == (counter.dist / package.file).read_bytes()


def test_an_archive_of_other_bytes_under_its_digest_is_refused(counter: Counter, tmp_path: Path) -> None:
    """A registry that does not hold itself to its digests."""
    for digest, content in counter.served.blobs.items():
        if len(content) > 10_000:
            counter.served.blobs[digest] = bytes(len(content))
    with pytest.raises(IntegrityError, match="sha256 differs"):
        read(counter, tmp_path)


def test_a_challenge_with_an_empty_value_names_nothing() -> None:
    assert bearer_parameters('Bearer realm=,service="registry"') == {"service": "registry"}
