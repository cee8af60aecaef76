"""Tests of archives found by address or by NVIDIA's list, from a local server with the real
servers' layout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.config.inputs import REDIST, Input, InputKind, Pin
from builder.errors import BuilderError, IntegrityError, ParseError, TransferError
from builder.io.store import UrlMirror, download_redist, download_url
from builder.io.transfer import HttpTransfer
from tests.doubles.loopback import static_server
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused

NVCC = Input(InputKind.REDIST, "12.9.1/cuda_nvcc")

FILE = "cuda_nvcc-linux-x86_64-12.9.86-archive.tar.xz"

ARCHIVE = b"an archive"

SHA256 = hashlib.sha256(ARCHIVE).hexdigest()

LIST = {
    "release_date": "2025-06-05",
    "release_label": "12.9.1",
    "cuda_nvcc": {
        "name": "CUDA NVCC",
        "license": "CUDA Toolkit",
        "version": "12.9.86",
        "linux-x86_64": {
            "relative_path": f"cuda_nvcc/linux-x86_64/{FILE}",
            "sha256": SHA256,
            "md5": "0",
            "size": str(len(ARCHIVE)),
        },
    },
}
"""A list in the layout of
developer.download.nvidia.com/compute/cuda/redist/redistrib_12.9.1.json; size is text."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, UrlMirror]]:
    """Return a folder in which addresses are paths of host and path, and a mirror that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=lambda _: None, env={})
    with static_server(folder) as url:
        yield folder, UrlMirror(transfer, f"{url}/")


def lay(folder: Path, address: str, data: bytes) -> None:
    path = folder / address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def redist(folder: Path, listed: object = LIST, data: bytes = ARCHIVE) -> None:
    root = "developer.download.nvidia.com/compute/cuda/redist"
    lay(folder, f"{root}/redistrib_12.9.1.json", json.dumps(listed).encode())
    lay(folder, f"{root}/cuda_nvcc/linux-x86_64/{FILE}", data)


def test_a_component_is_what_nvidias_list_names(served: tuple[Path, UrlMirror], tmp_path: Path) -> None:
    folder, mirror = served
    redist(folder)
    got = download_redist(mirror, NVCC, None, tmp_path)
    assert (got.name, got.read_bytes()) == (FILE, ARCHIVE)
    assert not list(tmp_path.glob("*.json"))


def test_a_pinned_component_asks_for_no_list(served: tuple[Path, UrlMirror], tmp_path: Path) -> None:
    folder, mirror = served
    redist(folder, listed="gone")
    pin = Pin(filename=FILE, size=len(ARCHIVE), sha256=SHA256)
    assert download_redist(mirror, NVCC, pin, tmp_path).read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("listed", "data", "error"),
    [
        (LIST, b"an Archive", IntegrityError),
        ({"release_label": "12.9.1"}, ARCHIVE, TransferError),
        ([], ARCHIVE, ParseError),
        ({"cuda_nvcc": {"linux-x86_64": {}}}, ARCHIVE, ParseError),
    ],
    ids=["other bytes", "without it", "no list", "no file"],
)
def test_a_list_without_it_or_with_other_bytes_is_told(
    served: tuple[Path, UrlMirror],
    tmp_path: Path,
    refused: Refused,
    listed: object,
    data: bytes,
    error: type[BuilderError],
) -> None:
    folder, mirror = served
    redist(folder, listed, data)
    with refused(error):
        download_redist(mirror, NVCC, None, tmp_path)


def test_files_of_one_name_at_two_addresses_do_not_collide(
    served: tuple[Path, UrlMirror], tmp_path: Path
) -> None:
    folder, mirror = served
    addresses = ["github.com/a/a/archive/v1.zip", "github.com/b/b/archive/v1.zip"]
    for address in addresses:
        lay(folder, address, address.encode())
    found = [
        download_url(mirror, Input(InputKind.URL, f"https://{address}"), None, tmp_path)
        for address in addresses
    ]
    assert [file.read_bytes().decode() for file in found] == addresses
    assert [file.name for file in found] == [one.replace("/", "_") for one in addresses]


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html>\n<html>", b"\n <HTML lang=en>", b'\n\n<!doctype  html PUBLIC "x">']
)
def test_a_web_page_in_the_place_of_a_file_is_told_and_not_kept(
    served: tuple[Path, UrlMirror], tmp_path: Path, page: bytes
) -> None:
    """A mirror's or proxy's page came with status 200, and was pinned as the archive."""
    folder, mirror = served
    lay(folder, "host.example/a/b.zip", page)
    item = Input(InputKind.URL, "https://host.example/a/b.zip")
    with pytest.raises(IntegrityError, match=r"^https://host\.example/a/b\.zip is a web page") as caught:
        download_url(mirror, item, None, tmp_path)
    assert "ORTPACKS_ARCHIVE_MIRROR names a server that answers with pages" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["served"]
    lay(folder, f"{REDIST.removeprefix('https://')}/redistrib_12.9.1.json", page)
    with pytest.raises(IntegrityError, match="is a web page"):
        download_redist(mirror, NVCC, None, tmp_path)
