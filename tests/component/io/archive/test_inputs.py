"""Tests of inputs that differ from the checked ones: no file has the final name, and the message
names the input."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from builder.config.variants import Preset
from builder.contents.package_manifest import ChangedFileError, Content
from builder.errors import BuilderError, DiskError, IntegrityError
from builder.files.digest import Digest, LocalFile, chunks_of
from builder.formats.package_names import Form
from builder.io.archive.package_writer import PackageWriter
from builder.io.archive.unpacking import extract
from tests.support.factories.archiving import (
    FILES,
    NAME,
    accept,
    archive,
    content,
    files_of_at_most,
    pack,
    unpacked_by_gzip_or_zstd,
)
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Told

E = TypeVar("E", bound=BuilderError)


def refusal(folder: Path, packed: Content, kind: type[E], by: PackageWriter | None = None) -> E:
    """Return the error with which packing into a folder below ``folder`` ends; nothing is left there."""
    dest = folder / "dist" / f"{NAME}.tar.zst"
    with pytest.raises(kind) as caught:
        (by or archive()).write(dest, packed, Preset.FAST, accept)
    assert list(dest.parent.iterdir()) == []
    return caught.value


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (b"short", Digest(5, hashlib.sha256(b"short").hexdigest())),
        (b"CUDNN" * 999, Digest(4995, hashlib.sha256(b"CUDNN" * 999).hexdigest())),
        (b"cudnn" * 1000, None),
    ],
)
def test_an_input_that_changed_since_it_was_checked_leaves_nothing(
    tmp_path: Path, told: Told, change: bytes, found: Digest | None
) -> None:
    packed = content(tmp_path / "in", FILES)
    packed.members[0].file.write_bytes(change)
    error = refusal(tmp_path, packed, ChangedFileError)
    assert (error.member, error.got) == (packed.members[0], found)
    told(error)


def touched(file: Path) -> None:
    os.utime(file, (1, 1))


def appended(file: Path) -> None:
    with file.open("ab") as more:
        more.write(b"more")


def cut(file: Path) -> None:
    os.truncate(file, 1_500_000)


@pytest.mark.parametrize("change", [touched, appended, cut])
def test_an_input_that_changes_while_it_is_read_leaves_nothing(
    tmp_path: Path, told: Told, change: Callable[[Path], None]
) -> None:
    """The file changes after its first bytes were packed and before its last ones are read."""
    packed = content(tmp_path / "in", {"lib/x": bytes(range(250)) * 20_000})

    class Racing(FakeReporter):
        @contextmanager
        def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
            yield lambda done: change(packed.members[0].file)

    told(refusal(tmp_path, packed, IntegrityError, by=PackageWriter(reporter=Racing(), workers=1)))


def test_a_file_that_is_written_to_while_it_is_hashed_has_no_digest(tmp_path: Path) -> None:
    """Otherwise, a mixture of two states would have a digest."""
    file = tmp_path / "x"
    file.write_bytes(bytes(3_000_000))
    chunks = chunks_of(file)
    next(chunks)
    appended(file)
    with pytest.raises(IntegrityError, match="x changed while it was read"):
        list(chunks)


def absent(file: Path) -> None:
    file.unlink()


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def looping(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def failing(file: Path) -> None:
    file.unlink()
    file.symlink_to("/proc/self/mem")  # opens, but its first byte is an I/O error


@pytest.mark.parametrize("plant", [absent, dangling, looping, folder, failing])
def test_an_input_that_cannot_be_read_is_named_and_leaves_nothing(
    tmp_path: Path, told: Told, plant: Callable[[Path], None]
) -> None:
    packed = content(tmp_path / "in", FILES)
    plant(packed.members[1].file)
    told(refusal(tmp_path, packed, IntegrityError))


def test_an_input_of_somebody_else_is_named() -> None:
    """Root reads every file, so the test runs as another user, in a folder which that user can enter."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        packed = content(Path(place) / "in", FILES)
        packed.members[1].file.chmod(0)
        with nobody(), pytest.raises(IntegrityError, match=r"input1 cannot be read: Permission denied.*mode"):
            archive().write(Path(place) / f"{NAME}.tar.zst", packed, Preset.FAST, accept)
        assert [path.name for path in Path(place).iterdir()] == ["in"]


@contextmanager
def nobody() -> Iterator[None]:
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("form", list(Form))
def test_names_with_spaces_newlines_and_dashes_are_names(tmp_path: Path, form: Form) -> None:
    """Names of files and of members are odd; no shell sees them."""
    files = {f"lib/{name}": name.encode() for name in ("a b.so", "-rf", "new\nline.so", "--help ;x", "ü.so")}
    home = tmp_path / "- odd\nfolder "
    package = pack(home, files, form=form)
    out = extract(package, tmp_path / "out")
    assert sorted(out) == sorted(["manifest.json", *files])
    assert {path: (tmp_path / "out" / path).read_bytes() for path in files} == files
    listed = subprocess.run(
        ["tar", "-tf", "-"], input=unpacked_by_gzip_or_zstd(package), capture_output=True, check=True
    ).stdout.decode()
    assert rf"{NAME}/lib/new\nline.so" in listed.splitlines()


def test_an_empty_file_is_packed_as_it_is(tmp_path: Path) -> None:
    """``locate`` and ``check`` refuse empty libraries; the archive does not."""
    out = extract(pack(tmp_path, {"lib/x": b""}), tmp_path / "out")
    assert out["lib/x"] == Digest(0, hashlib.sha256(b"").hexdigest())


def test_a_package_that_is_not_accepted_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    dest = tmp_path / f"{NAME}.tar.zst"
    dest.write_bytes(b"old")

    def refuse(package: LocalFile) -> None:
        assert package.size > 0
        raise BuilderError("no")

    with pytest.raises(BuilderError, match="no"):
        archive().write(dest, content(tmp_path / "in", FILES), Preset.FAST, refuse)
    assert dest.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_a_disk_that_fills_up_while_writing_is_named_with_the_bytes(tmp_path: Path) -> None:
    packed = content(tmp_path / "in", {"lib/noise": os.urandom(4_000_000)})
    with files_of_at_most(1_000_000):
        error = refusal(tmp_path, packed, DiskError)
    assert re.search(r"x64\.tar\.zst does not fit: .*About 3,000,\d+ bytes .* free", str(error))


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskError, match=r"about 3,\d{3} bytes are needed, 1,000 are free"):
        archive().write(tmp_path / f"{NAME}.tar.zst", content(tmp_path / "in", FILES), Preset.FAST, accept)


def test_what_a_killed_run_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    orphan = tmp_path / f"{NAME}.tar.zst.part-1"
    orphan.write_bytes(b"half")
    other = tmp_path / f"{NAME.replace('modern', 'legacy')}.tar.zst.part-1"
    other.write_bytes(b"half")
    living = tmp_path / f"{NAME}.tar.zst.part-2"
    with living.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        pack(tmp_path, FILES)
        assert (orphan.exists(), living.exists(), other.exists()) == (False, True, True)
