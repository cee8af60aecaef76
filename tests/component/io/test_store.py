"""Tests of the input cache, which verifies each file, and of archives found by address or NVIDIA's list."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.errors import (
    BuilderError,
    ConfigError,
    DiskError,
    IntegrityError,
    ParseError,
    TransferError,
    ValidationError,
)
from builder.io.store import FileStore, UrlMirror, download_redist, download_url
from builder.io.transfer import HttpTransfer
from tests.doubles.loopback import static_server
from tests.support.factories.archives import zipped
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused

ITEM = Input(InputKind.DEBIAN, "pool/main/h/hello/hello_1.orig.tar.gz")

WHEEL = Input.wheel("thing==1.0")

HELLO_HEX = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
"""sha256 of "hello" and a newline: ``printf 'hello\\n' | sha256sum``."""

PIN = Pin(filename="hello_1.orig.tar.gz", size=6, sha256=HELLO_HEX)


@dataclass
class FakeSource:
    body: bytes = b"hello\n"
    seconds: float = 0.0
    calls: list[Pin | None] = field(default_factory=list)

    def __call__(self, item: Input, pin: Pin | None, folder: Path) -> Path:
        self.calls.append(pin)
        time.sleep(self.seconds)
        file = folder / item.spec.rsplit("/", maxsplit=1)[-1]
        file.write_bytes(self.body)
        return file


def store(
    cache: Path, source: FakeSource, *, pin: Pin | None = PIN, item: Input = ITEM, offline: bool = False
) -> FileStore:
    return FileStore(
        cache=cache,
        lock=Lock(pins={item.key: pin} if pin else {}),
        sources={InputKind.DEBIAN: source, InputKind.WHEEL: source},
        reporter=FakeReporter(),
        offline=offline,
    )


def test_fetched_once_and_kept_by_content(tmp_path: Path) -> None:
    source = FakeSource()
    first = store(tmp_path, source).fetch(ITEM)
    assert first == tmp_path / "store/58" / HELLO_HEX / "hello_1.orig.tar.gz"
    assert first.read_bytes() == b"hello\n"
    os.utime(first, ns=(1, 1))
    assert store(tmp_path, source, offline=True).fetch(ITEM) == first, "with any time"
    assert source.calls == [PIN]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_wrong_bytes_say_wanted_and_got_and_are_kept_aside(tmp_path: Path, refused: Refused) -> None:
    with refused(IntegrityError):
        store(tmp_path, FakeSource(b"hullo\n")).fetch(ITEM)
    bad = tmp_path / "store/58" / HELLO_HEX / "hello_1.orig.tar.gz.bad"
    assert bad.read_bytes() == b"hullo\n"
    assert not bad.with_suffix("").exists()
    assert store(tmp_path, FakeSource()).fetch(ITEM).read_bytes() == b"hello\n"


@pytest.mark.parametrize("body", [b"hel", b"hullo\n"])
def test_a_cached_file_that_rotted(tmp_path: Path, body: bytes) -> None:
    """A file of the same size and time is seen by its bytes."""
    path = store(tmp_path, FakeSource()).fetch(ITEM)
    times = path.stat()
    path.write_bytes(body)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(IntegrityError, match=r"wanted sha256 5891.*\.bad"):
        store(tmp_path, FakeSource(), offline=True).fetch(ITEM)
    assert not path.exists()
    assert store(tmp_path, FakeSource()).fetch(ITEM).read_bytes() == b"hello\n"


@pytest.mark.parametrize(
    ("item", "pin", "offline", "error"),
    [
        (ITEM, PIN, True, TransferError),
        (ITEM, None, False, ConfigError),
        (ITEM, Pin(), False, ConfigError),
        (Input(InputKind.GIT, "https://git.example/o/n@v1"), Pin(revision="0" * 40), False, ConfigError),
        (WHEEL, None, False, ValidationError),
        (WHEEL, None, True, ConfigError),
    ],
    ids=[
        *("offline", "not in the lock", "an open pin", "a git tag is no file"),
        *("on no index", "on no index, offline"),
    ],
)
def test_what_may_not_enter_is_told_and_not_asked_for(
    tmp_path: Path, refused: Refused, item: Input, pin: Pin | None, offline: bool, error: type[BuilderError]
) -> None:
    """Defect: ``Run ./run lock`` was said of a version that no index has."""
    source, on_no_index = FakeSource(), Mock(side_effect=ValidationError("no index has it"))
    made = store(tmp_path, source, pin=pin, item=item, offline=offline)
    with refused(error):
        replace(made, require_wheel=on_no_index).fetch(item)
    assert source.calls == []


def test_side_by_side_fetches_download_once(tmp_path: Path) -> None:
    source = FakeSource(seconds=0.3)
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(lambda _: store(tmp_path, source).fetch(ITEM), range(3)))) == 1
    assert len(source.calls) == 1


def test_pin_says_what_it_got_and_keeps_it(tmp_path: Path) -> None:
    source = FakeSource()
    assert store(tmp_path, source, pin=None).pin(ITEM) == PIN
    assert source.calls == [None]
    assert store(tmp_path, source, offline=True).fetch(ITEM).read_bytes() == b"hello\n"


def test_leftovers_of_unwanted_inputs_go_and_of_wanted_ones_stay(tmp_path: Path) -> None:
    wanted, gone = (Input(InputKind.DEBIAN, f"pool/main/{name}.deb") for name in ("wanted", "gone"))
    parts = {}
    for item in (wanted, gone):
        parts[item] = tmp_path / "incoming" / hashlib.sha256(item.key.encode()).hexdigest()[:16] / "x.part"
        parts[item].parent.mkdir(parents=True)
        parts[item].write_bytes(b"half")
    replace(store(tmp_path, FakeSource()), lock=Lock(pins={ITEM.key: PIN, wanted.key: PIN})).fetch(ITEM)
    assert not parts[gone].parent.exists()
    assert parts[wanted].read_bytes() == b"half"


def test_unpack_once_even_without_the_wheel(tmp_path: Path) -> None:
    record = "p-1.dist-info/RECORD"
    body = zipped({record: f"{record},,\n".encode()})
    item = Input.wheel("p==1")
    pin = Pin(filename="p-1.whl", size=len(body), sha256=hashlib.sha256(body).hexdigest())
    tree = store(tmp_path, FakeSource(body), item=item, pin=pin).unpack(item)
    assert tree == tmp_path / "unpacked" / pin.sha256
    assert (tree / record).read_text() == f"{record},,\n"
    for file in (tmp_path / "store").rglob("*.whl"):
        file.unlink()
    assert store(tmp_path, FakeSource(), item=item, pin=pin, offline=True).unpack(item) == tree


@pytest.mark.parametrize("path", ["cache", "cache/incoming"])
def test_a_cache_that_cannot_be_written_is_a_disk_error(tmp_path: Path, refused: Refused, path: str) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("a file where a folder should be")
    with refused(DiskError):
        store(tmp_path / "cache", FakeSource()).fetch(ITEM)


def test_what_is_absent_is_known_in_bytes(tmp_path: Path) -> None:
    wheel = Input.wheel("hello==1")
    pins = {ITEM.key: PIN, wheel.key: Pin(filename="hello-1.whl", size=50, sha256="1" * 64)}
    here = replace(store(tmp_path, FakeSource()), lock=Lock(pins=pins))
    assert [here.absent(item) for item in (ITEM, wheel, WHEEL)] == [(6, 0), (50, 50), (0, 0)]
    here.fetch(ITEM)
    (tmp_path / "unpacked" / ("1" * 64)).mkdir(parents=True)
    assert [here.absent(item) for item in (ITEM, wheel)] == [(0, 0), (50, 0)]


NVCC = Input(InputKind.REDIST, "12.9.1/cuda_nvcc")

FILE = "cuda_nvcc-linux-x86_64-12.9.86-archive.tar.xz"

ARCHIVE = b"an archive"

SHA256 = hashlib.sha256(ARCHIVE).hexdigest()

LISTED = {"relative_path": f"cuda_nvcc/linux-x86_64/{FILE}", "sha256": SHA256, "size": str(len(ARCHIVE))}

LIST = {
    "release_label": "12.9.1",
    "cuda_nvcc": {"name": "CUDA NVCC", "version": "12.9.86", "linux-x86_64": LISTED},
}
"""A list in the layout of
developer.download.nvidia.com/compute/cuda/redist/redistrib_12.9.1.json; size is text."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a served folder in which addresses are paths of host and path."""
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture
def mirror(folder: Path) -> Iterator[UrlMirror]:
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=lambda _: None, env={})
    with static_server(folder) as url:
        yield UrlMirror(transfer, f"{url}/")


def lay(folder: Path, address: str, data: bytes) -> None:
    path = folder / address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def redist(folder: Path, listed: object = LIST) -> None:
    root = "developer.download.nvidia.com/compute/cuda/redist"
    lay(folder, f"{root}/redistrib_12.9.1.json", json.dumps(listed).encode())
    lay(folder, f"{root}/cuda_nvcc/linux-x86_64/{FILE}", ARCHIVE)


def test_a_mirror_that_is_a_folder_is_asked_first_and_may_lack_files(tmp_path: Path) -> None:
    asked, root = Mock(), tmp_path / "Spiegel über"
    asked.download = Mock(side_effect=lambda url, dest, size=0: dest.write_text(url))
    there, absent = "https://h.example/o/v1.zip", "https://h.example/o/v2.zip"
    (root / "h.example/o").mkdir(parents=True)
    (root / "h.example/o/v1.zip").write_text("here")
    of_folder = UrlMirror(asked, f"{root}/")
    for url, content in ((there, "here"), (absent, absent)):
        of_folder.download(url, tmp_path / "file")
        assert (tmp_path / "file").read_text() == content
    assert [call.args[0] for call in asked.download.call_args_list] == [absent]


def test_a_component_is_of_nvidias_list_or_pinned(folder: Path, mirror: UrlMirror, tmp_path: Path) -> None:
    redist(folder)
    got = download_redist(mirror, NVCC, None, tmp_path)
    assert (got.name, got.read_bytes()) == (FILE, ARCHIVE)
    assert not list(tmp_path.glob("*.json"))
    got.unlink()
    redist(folder, listed="gone")
    pin = Pin(filename=FILE, size=len(ARCHIVE), sha256=SHA256)
    assert download_redist(mirror, NVCC, pin, tmp_path).read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        ({"cuda_nvcc": {"linux-x86_64": {**LISTED, "sha256": "0" * 64}}}, IntegrityError),
        ({"release_label": "12.9.1"}, TransferError),
        ([], ParseError),
        ({"cuda_nvcc": {"linux-x86_64": {}}}, ParseError),
    ],
    ids=["other bytes", "without it", "no list", "no file"],
)
def test_a_list_without_it_or_with_other_bytes_is_told(
    folder: Path,
    mirror: UrlMirror,
    tmp_path: Path,
    refused: Refused,
    listed: object,
    error: type[BuilderError],
) -> None:
    redist(folder, listed)
    with refused(error):
        download_redist(mirror, NVCC, None, tmp_path)


def test_files_of_one_name_do_not_collide(folder: Path, mirror: UrlMirror, tmp_path: Path) -> None:
    for address in ("github.com/a/a/archive/v1.zip", "github.com/b/b/archive/v1.zip"):
        lay(folder, address, address.encode())
        file = download_url(mirror, Input(InputKind.URL, f"https://{address}"), None, tmp_path)
        assert (file.name, file.read_bytes().decode()) == (address.replace("/", "_"), address)


@pytest.mark.parametrize("page", [b"\n <HTML lang=en>", b'\n\n<!doctype  html PUBLIC "x">'])
def test_a_web_page_in_the_place_of_a_file_is_told_and_not_kept(
    folder: Path, mirror: UrlMirror, tmp_path: Path, refused: Refused, page: bytes
) -> None:
    """A mirror's or proxy's page came with status 200, and was pinned as the archive."""
    lay(folder, "host.example/a/b.zip", page)
    with refused(IntegrityError):
        download_url(mirror, Input(InputKind.URL, "https://host.example/a/b.zip"), None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["served"]
