"""Tests of downloads of Debian files from a mirror that fails as real ones do, and of apt's source files."""

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind, Pin
from builder.errors import DiskError, TransferError
from builder.io.debian.apt_mirror import AptMirrors, debian_mirrors, download_debian
from builder.io.store import Source
from builder.io.transfer import HttpTransfer
from tests.doubles.fileserver import FileServer, serve
from tests.support.factories.archiving import files_of_at_most
from tests.support.fakes.ports import FakeReporter
from tests.support.tables import data_text

POOL = "pool/main/n/nvcc/nvcc_12.4~12+dfsg-2_amd64.deb"

ITEM = Input(InputKind.DEBIAN, POOL)

BODY = os.urandom(1 << 20)


@pytest.fixture
def mirror() -> Iterator[FileServer]:
    with serve(FileServer(files={POOL: BODY})) as server:
        yield server


def source(*urls: str, folder: Path, sleep: Callable[[float], None] = lambda seconds: None) -> Source:
    apt = folder / "apt"
    (apt / "sources.list.d").mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text("".join(f"deb {url} bookworm main\n" for url in urls))
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=sleep, env={})
    return partial(download_debian, AptMirrors(folder=apt), transfer)


PIN = Pin(filename=Path(POOL).name, size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())


def test_the_file_comes_under_its_own_name(mirror: FileServer, tmp_path: Path) -> None:
    file = source(mirror.url, folder=tmp_path)(ITEM, PIN, tmp_path)
    assert file == tmp_path / "nvcc_12.4~12+dfsg-2_amd64.deb"
    assert file.read_bytes() == BODY
    assert mirror.requests == [("/debian/pool/main/n/nvcc/nvcc_12.4~12%2Bdfsg-2_amd64.deb", "")]


def test_404_goes_to_the_next_mirror(mirror: FileServer, tmp_path: Path) -> None:
    with serve(FileServer(files={})) as empty:
        file = source(empty.url, mirror.url, folder=tmp_path)(ITEM, PIN, tmp_path)
    assert file.read_bytes() == BODY


def test_404_everywhere_says_what_to_do(tmp_path: Path) -> None:
    with (
        serve(FileServer(files={})) as empty,
        pytest.raises(TransferError, match=r"nvcc_12.*is not on http.*ORTPACKS_DEBIAN_MIRROR"),
    ):
        source(empty.url, folder=tmp_path)(ITEM, PIN, tmp_path)


def test_a_system_that_knows_no_debian_asks_debians_own(tmp_path: Path) -> None:
    """Debian's own sources.list has the address deb.debian.org."""
    for override in (None, ""):
        assert AptMirrors(folder=tmp_path, override=override).find() == ("https://deb.debian.org/debian",)


def test_a_full_disk_leaves_no_part(mirror: FileServer, tmp_path: Path) -> None:
    getter = source(mirror.url, folder=tmp_path)
    with files_of_at_most(300_000), pytest.raises(DiskError):
        getter(ITEM, PIN, tmp_path)
    assert not list(tmp_path.glob("*.part"))


DEB822 = data_text("debian/debian.sources")

CONTINUED = data_text("debian/continued.sources")

ONE_LINE = data_text("debian/sources.list")

VENDORS = data_text("debian/vendors.list")

OURS = "http://one.example/debian"


@pytest.mark.parametrize(
    ("file", "text", "mirrors"),
    [
        ("debian.sources", DEB822, (OURS,)),
        ("x.sources", CONTINUED, (OURS, "https://b.example/debian")),
        ("x.sources", "Enabled: no\n" + DEB822, ()),
        ("sources.list", ONE_LINE, (OURS,)),
        ("a.list", VENDORS, (OURS, "https://php.example/php")),
        ("sources.list", "deb http://archive.example/ubuntu jammy main restricted\n", ()),
        ("sources.list", "deb cdrom:[Debian]/ bookworm main\n", ()),
    ],
    ids=["deb822", "continued", "disabled", "one line", "other vendors", "Ubuntu", "cdrom"],
)
def test_mirrors_of_debians_own_archive_come_first(file: str, text: str, mirrors: tuple[str, ...]) -> None:
    assert debian_mirrors({file: text}) == mirrors
