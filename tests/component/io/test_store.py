"""Tests of the input cache: each file is verified when it enters and again when its metadata changed."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.errors import (
    BuilderError,
    ConfigError,
    DiskError,
    IntegrityError,
    TransferError,
    ValidationError,
)
from builder.io.store import FileStore
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
    assert store(tmp_path, source, offline=True).fetch(ITEM) == first
    assert source.calls == [PIN]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_wrong_bytes_say_wanted_and_got_and_are_kept_aside(tmp_path: Path) -> None:
    got = hashlib.sha256(b"hullo\n").hexdigest()
    with pytest.raises(
        IntegrityError, match=rf"{ITEM.key}: wanted sha256 {HELLO_HEX} \(6 bytes\), got {got}"
    ) as e:
        store(tmp_path, FakeSource(b"hullo\n")).fetch(ITEM)
    bad = tmp_path / "store/58" / HELLO_HEX / "hello_1.orig.tar.gz.bad"
    assert str(bad) in str(e.value)
    assert bad.read_bytes() == b"hullo\n"
    assert not bad.with_suffix("").exists()
    assert store(tmp_path, FakeSource()).fetch(ITEM).read_bytes() == b"hello\n"


@pytest.mark.parametrize("body", [b"hel", b"hullo\n", b"", b"hello\nmore"])
def test_a_cached_file_that_rotted(tmp_path: Path, body: bytes) -> None:
    path = store(tmp_path, FakeSource()).fetch(ITEM)
    path.write_bytes(body)
    with pytest.raises(IntegrityError, match=r"wanted sha256 5891.*\.bad"):
        store(tmp_path, FakeSource(), offline=True).fetch(ITEM)
    assert not path.exists()
    assert store(tmp_path, FakeSource()).fetch(ITEM).read_bytes() == b"hello\n"


def test_a_replaced_file_of_the_same_size_and_time_is_hashed(tmp_path: Path) -> None:
    path = store(tmp_path, FakeSource()).fetch(ITEM)
    times = path.stat()
    other = tmp_path / "other"
    other.write_bytes(b"hullo\n")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)
    with pytest.raises(IntegrityError):
        store(tmp_path, FakeSource()).fetch(ITEM)


def test_a_touched_file_with_the_right_bytes_is_fine(tmp_path: Path) -> None:
    path = store(tmp_path, FakeSource()).fetch(ITEM)
    os.utime(path, ns=(1, 1))
    assert store(tmp_path, FakeSource(), offline=True).fetch(ITEM) == path


@pytest.mark.parametrize(
    ("item", "pin", "offline", "error"),
    [
        (ITEM, PIN, True, TransferError),
        (ITEM, None, False, ConfigError),
        (ITEM, Pin(), False, ConfigError),
        (Input(InputKind.GIT, "https://git.example/o/n@v1"), Pin(revision="0" * 40), False, ConfigError),
    ],
    ids=["offline", "not in the lock", "an open pin", "a git tag is no file"],
)
def test_what_may_not_enter_is_told_and_not_asked_for(
    tmp_path: Path, refused: Refused, item: Input, pin: Pin | None, offline: bool, error: type[BuilderError]
) -> None:
    source = FakeSource()
    with refused(error):
        store(tmp_path, source, pin=pin, item=item, offline=offline).fetch(item)
    assert source.calls == []


def test_side_by_side_fetches_download_once(tmp_path: Path) -> None:
    source = FakeSource(seconds=0.3)
    threads = [threading.Thread(target=store(tmp_path, source).fetch, args=[ITEM]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(source.calls) == 1


def test_pin_says_what_it_got_and_keeps_it(tmp_path: Path) -> None:
    source = FakeSource()
    assert store(tmp_path, source, pin=None).pin(ITEM) == PIN
    assert source.calls == [None]
    assert store(tmp_path, source, offline=True).fetch(ITEM).read_bytes() == b"hello\n"


def test_leftovers_of_unwanted_inputs_go_and_of_wanted_ones_stay(tmp_path: Path) -> None:
    wanted = Input(InputKind.DEBIAN, "pool/main/w/wanted.deb")
    gone, resumable = (
        tmp_path / "incoming" / hashlib.sha256(key.encode()).hexdigest()[:16]
        for key in ("debian:pool/main/g/gone.deb", wanted.key)
    )
    for folder in (gone, resumable):
        folder.mkdir(parents=True)
        (folder / "x.part").write_bytes(b"half")
    pins = Lock(pins={ITEM.key: PIN, wanted.key: PIN})
    FileStore(
        cache=tmp_path, lock=pins, sources={InputKind.DEBIAN: FakeSource()}, reporter=FakeReporter()
    ).fetch(ITEM)
    assert not gone.exists()
    assert (resumable / "x.part").read_bytes() == b"half"


def test_unpack_once_even_without_the_wheel(tmp_path: Path) -> None:
    record = "p-1.dist-info/RECORD"
    wheel = tmp_path / "made.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(record, f"{record},,\n")
    body = wheel.read_bytes()
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
    here = FileStore(cache=tmp_path, lock=Lock(pins=pins), sources={}, reporter=FakeReporter())
    assert [here.absent(item) for item in (ITEM, wheel)] == [(6, 0), (50, 50)]
    store(tmp_path, FakeSource()).fetch(ITEM)
    (tmp_path / "unpacked" / ("1" * 64)).mkdir(parents=True)
    assert [here.absent(item) for item in (ITEM, wheel)] == [(0, 0), (50, 0)]
    assert here.absent(Input.wheel("unknown==1")) == (0, 0)


@pytest.mark.parametrize(
    ("item", "offline", "asked"), [(WHEEL, False, True), (WHEEL, True, False), (ITEM, False, False)]
)
def test_a_wheel_that_can_get_no_pin_is_told_as_such(
    tmp_path: Path, item: Input, offline: bool, asked: bool
) -> None:
    """Defect: ``Run ./run lock`` was said of a version that no index has."""
    made = replace(
        store(tmp_path, FakeSource(), pin=None, item=item, offline=offline), require_wheel=not_on_the_index
    )
    with pytest.raises(ValidationError if asked else ConfigError) as caught:
        made.fetch(item)
    assert ("no index" in str(caught.value)) == asked


def not_on_the_index(item: Input) -> None:
    raise ValidationError(f"{item.spec}: no index has it")
