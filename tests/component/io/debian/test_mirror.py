"""Tests of downloads of Debian files from a mirror that fails as real ones do, and of apt's source files."""

import hashlib
import os
import signal
import subprocess
import sys
import time
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


def test_a_file_that_changed_meanwhile_is_not_glued_together(mirror: FileServer, tmp_path: Path) -> None:
    mirror.faults = ["cut", *["503"] * 5]
    getter = source(mirror.url, folder=tmp_path)
    with pytest.raises(TransferError):
        getter(ITEM, PIN, tmp_path)
    mirror.files[POOL], mirror.etag = b"new" * 400_000, '"two"'
    assert getter(ITEM, None, tmp_path).read_bytes() == b"new" * 400_000


def test_500_is_tried_again_with_growing_pauses(mirror: FileServer, tmp_path: Path) -> None:
    pauses: list[float] = []
    mirror.faults = ["500", "502", "429"]
    file = source(mirror.url, folder=tmp_path, sleep=pauses.append)(ITEM, PIN, tmp_path)
    assert file.read_bytes() == BODY
    assert pauses == [1, 2, 4]


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


CHILD = """
import sys, time
from pathlib import Path
from builder.io.transfer import HttpTransfer
from tests.support.fakes.ports import FakeReporter
transfer = HttpTransfer(reporter=FakeReporter(), sleep=time.sleep, env={})
transfer.download(sys.argv[1], Path(sys.argv[2]), size=1 << 20)
"""


def test_kill_9_in_the_middle_costs_only_the_rest(mirror: FileServer, tmp_path: Path, root: Path) -> None:
    mirror.faults = ["stall"]
    url, dest = f"{mirror.url}/{POOL.replace('+', '%2B')}", tmp_path / Path(POOL).name
    with subprocess.Popen([sys.executable, "-c", CHILD, url, str(dest)], cwd=root) as child:
        part = tmp_path / f"{dest.name}.part"
        deadline = time.monotonic() + 20
        while not (part.is_file() and part.stat().st_size > 1 << 18) and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    assert not dest.exists()
    kept = part.stat().st_size
    assert kept >= 1 << 18
    file = source(mirror.url, folder=tmp_path)(ITEM, PIN, tmp_path)
    assert file.read_bytes() == BODY
    assert mirror.requests[-1][1] == f"bytes={kept}-"


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
